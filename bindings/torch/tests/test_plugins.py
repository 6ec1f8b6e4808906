"""The plug-ins of vLLM and SGLang beside stand-ins for these: a version that has nothing to replace is
told of it."""

import os
import sys
import types
import unittest
from unittest import mock

from unisono_torch import sglang_plugin, vllm_plugin


def modules(**contents):
    """Modules by name, with __ for a dot, and those that they lie in."""
    made = {}
    for name, content in contents.items():
        parts = name.split("__")
        for count in range(1, len(parts) + 1):
            path = ".".join(parts[:count])
            made.setdefault(path, types.ModuleType(path))
        vars(made[name.replace("__", ".")]).update(content)
    return mock.patch.dict(sys.modules, made)


class Plugins(unittest.TestCase):
    def register_with_vllm(self, **classes):
        platform = types.SimpleNamespace(is_cpu=lambda: True)
        with modules(
            vllm={"envs": types.SimpleNamespace(VLLM_PLUGINS=["unisono"])},
            vllm__platforms={"current_platform": platform},
            vllm__distributed__device_communicators__cpu_communicator=classes,
        ):
            vllm_plugin.register()
            return sys.modules[vllm_plugin._MODULE]

    def test_vllm(self):
        module = self.register_with_vllm(_CPUSHMDistributed=object)
        self.assertIs(module._CPUSHMDistributed, vllm_plugin.Distributed)
        with self.assertRaisesRegex(RuntimeError, "has no vllm.*_CPUSHMDistributed"):
            self.register_with_vllm()

    def register_with_sglang(self, *methods, plugins="unisono"):
        registry, coordinator = mock.Mock(), type("Coordinator", (), dict.fromkeys(methods))
        with mock.patch.dict(os.environ, SGLANG_PLUGINS=plugins), modules(
            sglang__srt__plugins__hook_registry={"HookRegistry": registry, "HookType": mock.Mock()},
            sglang__srt__distributed__parallel_state={"GroupCoordinator": coordinator},
        ):
            try:
                sglang_plugin.register()
            finally:
                self.hooked = [call.args[0].rsplit(".", 2)[1:] for call in registry.register.mock_calls]

    def test_sglang(self):
        methods = ("__init__", "all_reduce", "all_gather")
        for plugins in ("unisono", "other, unisono"):
            self.register_with_sglang("all_reduce", "all_gather", plugins=plugins)
            self.assertEqual(self.hooked, [["GroupCoordinator", method] for method in methods])
        for plugins in ("", "other", "unisono_too"):
            self.register_with_sglang("all_reduce", "all_gather", plugins=plugins)
            self.assertEqual(self.hooked, [])
        with self.assertRaisesRegex(RuntimeError, "has no sglang.*GroupCoordinator.all_gather"):
            self.register_with_sglang("all_reduce")
        self.assertEqual(self.hooked, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
