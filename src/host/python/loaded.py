# Lists the files that this process has loaded as modules (L) or opened to read (R), when it ends, and has these modules compiled from their
# source. Those of the standard library and of installed packages aside. Written by ledger; it changes nothing else of the program.
# Any Python can execute it, and no fault of it may reach the program.
def _is_installed(path):
    import os

    standard = os.path.dirname(os.__file__) + os.sep
    return path.startswith(standard) or "/site-packages/" in path or "/dist-packages/" in path


def _begin():
    import os, sys

    own = os.path.dirname(os.path.abspath(__file__))
    # The program sees its own import path, and the `sitecustomize` that it would have had.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != own]
    target = os.environ.get("LEDGER_LOADED")
    if target:
        import atexit

        began = os.getcwd()
        reads = set()
        most = 1000

        def _opened(event, arguments):
            if event not in ("open", "ctypes.dlopen") or len(reads) >= most:
                return
            try:
                path, mode, flags = arguments if event == "open" else (arguments[0], "r", 0)
                if mode is None:
                    is_read = flags & os.O_ACCMODE == os.O_RDONLY and not flags & getattr(os, "O_DIRECTORY", 0)
                else:
                    is_read = "r" in mode and "+" not in mode
                if is_read and not isinstance(path, int):
                    path = os.path.join(os.getcwd(), os.fsdecode(path))
                    if path.startswith(began + os.sep):
                        reads.add(path)
            except Exception:
                pass

        if hasattr(sys, "addaudithook"):
            sys.addaudithook(_opened)

        def _in_child():
            # A forked worker of `multiprocessing` ends without `atexit`.
            util = sys.modules.get("multiprocessing.util")
            if util:
                util.register_after_fork(_end, lambda end: util.Finalize(None, end, exitpriority=0))

        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=_in_child)

        @atexit.register
        def _end():
            try:
                found = set()
                paths = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
                # When a script ends, its module has no `__file__` any more.
                paths.extend(path for path in sys.argv[:1] if os.path.isfile(path))
                opened = list(reads)
                for kind, path in [("L", path) for path in paths] + [("R", path) for path in opened]:
                    if not isinstance(path, str):
                        continue
                    path = os.path.join(began, path)
                    if path.startswith(own) or _is_installed(path):
                        continue
                    found.add(kind + path)
                text = "".join(sorted(path + "\0" for path in found))
                if text:
                    handle = os.open(target, os.O_WRONLY | os.O_APPEND)
                    try:
                        os.write(handle, text.encode("utf-8", "surrogateescape"))
                    finally:
                        os.close(handle)
            except Exception:
                pass


def _compile_from_source():
    # Python takes bytecode for current whose source has the same size and the same second of change: after a quick edit it would execute
    # the code before. Where there is no place for bytecode, it compiles the source.
    import os
    import importlib._bootstrap_external as bootstrap

    if not os.environ.get("LEDGER_LOADED"):
        return
    began = os.getcwd()
    place_of_bytecode = bootstrap.cache_from_source

    def _cache_from_source(path, *arguments, **named):
        if not _is_installed(os.path.join(began, os.fspath(path))):
            raise NotImplementedError
        return place_of_bytecode(path, *arguments, **named)

    bootstrap.cache_from_source = _cache_from_source


def _next():
    import sys

    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401  The one of the environment, if there is one.
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", own)


for _step in (_begin, _compile_from_source):
    try:
        _step()
    except Exception:
        pass
_next()
