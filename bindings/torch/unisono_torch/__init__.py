"""unisono as a backend of torch.distributed.

    import torch.distributed as dist
    import unisono_torch  # not needed from torch 2.5 on
    dist.init_process_group("unisono")

The adapter is compiled for the installed torch when the first group is made, once (see
`python -m unisono_torch --prebuild`).
"""

NAME = "unisono"
# What groups call themselves in profiles and messages.
SHOWN_NAME = NAME


def _create(options, _group_options):
    """torch calls this for each group that this process is a member of."""
    from unisono_torch import _build

    _let_others_split()
    return _build.load().create(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout.total_seconds(),
        SHOWN_NAME,
        joins=not getattr(options, "enable_reconfigure", False),
        # Of the world torch gives none.
        global_ranks=options.global_ranks_in_group or list(range(options.group_size)),
    )


def _let_others_split():
    """torch calls this on ranks that are not in a new group, where the world is bound to a device
    and its backend splits: only NCCL's backend has it. The members meet without the others."""
    from torch._C._distributed_c10d import Backend

    if not hasattr(Backend, "perform_nocolor_split"):
        Backend.perform_nocolor_split = _no_split_without_a_part


def _no_split_without_a_part(backend, _device):
    if backend.name() != SHOWN_NAME:
        raise AttributeError(f"the backend {backend.name()} has no 'perform_nocolor_split'")


def abort(group=None):
    """Ends every call of the group, on all ranks, with an error that says so; the group takes no
    more. Any thread. A backend of torch 2.5 and newer has the method itself."""
    backend = _backend_of(group)
    if hasattr(backend, "abort"):
        backend.abort()
    else:
        from unisono_torch import _build

        _build.load().abort(backend)


def _backend_of(group):
    """The group's part that is of unisono, for whichever device."""
    import torch
    import torch.distributed as dist

    for device in ("cpu", "cuda"):
        try:
            backend = (group or dist.group.WORLD)._get_backend(torch.device(device))
        except RuntimeError:
            continue  # it has none for that
        if backend.name() == SHOWN_NAME:
            return backend
    raise ValueError("unisono: the group has no backend of unisono")


def register():
    """Makes the name known to torch. Any number of times."""
    import torch.distributed as dist

    if not dist.is_available() or NAME.upper() in dist.Backend._plugins:
        return
    dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu", "cuda"])


register()
