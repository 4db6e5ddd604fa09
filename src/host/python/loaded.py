# Lists the files that this process loads as modules (L) or opens to read (R): modules when it ends, files of the program's folder at once.
# It also has these modules compiled from their source. It leaves out the standard library and installed packages.
# Written by ledger. Any Python can execute it, and no fault of it may reach the program.
def _begin(customized):
    import os, sys

    own = os.path.dirname(os.path.abspath(__file__))
    # The program sees its own import path, and the `sitecustomize` that it would have had.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != own]
    target = os.environ.get("LEDGER_LOADED")
    if not target:
        return
    began = os.getcwd()
    # The program's folders: of its files, what is opened to read is listed.
    inside = tuple(folder + os.sep for folder in os.environ.get("LEDGER_FOLDERS", began).split(":"))
    installed = [own, os.path.dirname(os.__file__)]
    for prefix in (sys.prefix, getattr(sys, "base_prefix", sys.prefix)):
        # Launchers such as `torchrun`.
        installed.append(os.path.join(prefix, "bin"))
    installed.append(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or own)
    installed = tuple(folder + os.sep for folder in installed)
    marks = ("/site-packages/", "/dist-packages/", "/lib_pypy/", "/torchinductor_")
    holds_packages = {}

    def _is_of_target(path):
        # `pip install --target` leaves the names and versions of its packages beside them.
        for entry in sys.path:
            if entry and not (entry + os.sep).startswith(inside) and path.startswith(entry + os.sep):
                if entry not in holds_packages:
                    try:
                        holds_packages[entry] = any(name.endswith(".dist-info") for name in os.listdir(entry))
                    except OSError:
                        holds_packages[entry] = False
                if holds_packages[entry]:
                    return True
        return False

    def _is_installed(path):
        return path.startswith(installed) or any(mark in path for mark in marks) or _is_of_target(path)

    def _list(paths):
        try:
            text = "".join(path + "\0" for path in paths)
            if text:
                handle = os.open(target, os.O_WRONLY | os.O_APPEND)
                try:
                    if os.fstat(handle).st_size < 1 << 24:
                        os.write(handle, text.encode("utf-8", "surrogateescape"))
                finally:
                    os.close(handle)
        except Exception:
            pass

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
            if not is_read or isinstance(path, int):
                return
            path = os.fsdecode(path)
            # The loader looks for a bare name elsewhere.
            if event == "open" or os.sep in path:
                path = os.path.normpath(os.path.join(os.getcwd(), path))
                if path.startswith(inside) and path not in reads and path != target and not _is_installed(path):
                    reads.add(path)
                    # At once: a worker of `multiprocessing`, or a process that is killed, does not come to its end. With its time of change:
                    # whether the program made the file itself, or somebody changes it later.
                    _list(["R%d %s" % (os.stat(path).st_mtime_ns, path)])
        except Exception:
            pass

    if hasattr(sys, "addaudithook"):
        sys.addaudithook(_opened)

    # The modules that a forked process has from its parent, which lists them.
    before = set()

    def _in_child():
        before.update(sys.modules)
        # A forked worker of `multiprocessing` ends without `atexit`.
        util = sys.modules.get("multiprocessing.util")
        if util:
            util.register_after_fork(_end, lambda end: util.Finalize(None, end, exitpriority=0))

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_in_child)

    import atexit

    @atexit.register
    def _end():
        try:
            modules = [module for name, module in list(sys.modules.items()) if name not in before]
            paths = [getattr(module, "__file__", None) for module in modules]
            # When a script ends, its module has no `__file__` any more.
            paths.extend(path for path in sys.argv[:1] if os.path.isfile(path))
            paths = set(os.path.join(began, path) for path in paths if isinstance(path, str))
            other = getattr(customized[0], "__file__", None)
            if other and not other.startswith(inside):
                paths.discard(other)
            _list(sorted("L" + path for path in paths if not _is_installed(path)))
        except Exception:
            pass

    # Python takes bytecode for current whose source has the same size and the same second of change: after a quick edit it would execute
    # the code before. Where there is no place for bytecode, it compiles the source. `importlib.util` keeps the function for others.
    import importlib.util
    import importlib._bootstrap_external as bootstrap

    place_of_bytecode = bootstrap.cache_from_source

    def _cache_from_source(path, *arguments, **named):
        if not _is_installed(os.path.join(began, os.fspath(path))):
            raise NotImplementedError
        return place_of_bytecode(path, *arguments, **named)

    bootstrap.cache_from_source = _cache_from_source


def _next(customized):
    import sys

    own = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # The one of the environment, if there is one.

        customized[0] = sitecustomize
    except ImportError as error:
        if getattr(error, "name", "sitecustomize") != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", own)


_customized = [None]
try:
    _begin(_customized)
except Exception:
    pass
_next(_customized)
