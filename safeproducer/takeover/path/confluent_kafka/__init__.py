"""Stands before the real confluent_kafka on PYTHONPATH, where `safeproducer run` puts it.

It becomes the real package: the same module object, with the real one's code, path, file and spec. Then its producers
are replaced. Only the standard library is needed here: the interpreter may be another one than that of the command.
"""


def _become_the_real_one() -> None:
    import os  # noqa: PLC0415 - no name of this file may stay in the real package
    import sys  # noqa: PLC0415

    module = sys.modules[__name__]
    here = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    spec = None
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        paths = [path for path in sys.path if os.path.realpath(path or os.curdir) != here]
        spec = find and find(__name__, paths if getattr(finder, "__name__", "") == "PathFinder" else None)
        if spec is not None and spec.origin is not None and not os.path.realpath(spec.origin).startswith(here + os.sep):
            break
        spec = None
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {__name__!r}", name=__name__)
    # Another thread that imports it waits as long as the spec says this; so before it can see that spec.
    spec._initializing = True
    module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
    module.__path__, module.__doc__ = list(spec.submodule_search_locations or ()), None
    vars(module)["__cached__"] = spec.cached
    del module._become_the_real_one
    try:
        spec.loader.exec_module(module)
        try:
            from safeproducer.takeover.producers import replace  # noqa: PLC0415

            replace(module)
        except Exception as error:  # another interpreter, without safeproducer; an old confluent_kafka; a defect
            if sys.stderr is not None:
                print(f"safeproducer run: nothing is replaced in {sys.executable}: {error}", file=sys.stderr)  # noqa: T201
    finally:
        spec._initializing = False


_become_the_real_one()
