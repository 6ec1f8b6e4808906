"""Collectives on tensors of PyTorch as operators, for inference: unisono_torch.ops by another name.

Needs the package unisono-torch (pip install --no-deps ./bindings/torch), which needs torch.
"""

import sys

import unisono_torch.ops

# The module itself, since it has state.
sys.modules[__name__] = unisono_torch.ops
