"""Collectives on tensors of PyTorch as operators, for inference: unisono_torch.ops by another name.

Needs the package unisono-torch (pip install --no-deps ./bindings/torch), which needs torch.
"""

import importlib
import sys

# The module itself, since it has state.
sys.modules[__name__] = importlib.import_module("unisono_torch.ops")
