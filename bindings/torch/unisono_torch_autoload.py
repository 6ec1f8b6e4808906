"""For torch's own loading of plug-ins, whose failure would be the end of `import torch`."""


def autoload():
    try:
        import unisono_torch  # noqa: F401  registers itself
    except Exception as error:  # noqa: BLE001
        import warnings

        warnings.warn(f"unisono_torch could not register itself: {error}", stacklevel=2)
