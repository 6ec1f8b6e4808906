"""Ends the examples: says what came of the training, and fails if that is wrong."""

import sys

import torch.distributed as dist


def finish(name, losses, parameters):
    """Ends the rank. The loss has to halve, and all ranks have to have the same parameters."""
    sums = [parameter.detach().double().sum().item() for parameter in parameters]
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, (losses[-1], sums))
    halved = losses[-1] < losses[0] / 2
    equal = all(each == every[0] for each in every)
    if dist.get_rank() == 0:
        print(
            f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f} in {len(losses)} steps, "
            f"{'equal' if equal else 'DIFFERENT'} on {len(every)} ranks",
            flush=True,
        )
    dist.destroy_process_group()
    sys.exit(0 if halved and equal else 1)
