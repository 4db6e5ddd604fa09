# Lists the files that this process loads as modules (L), and those of the program's folders that it opens to read (R, with their time of change)
# or to write (W): modules when it ends, files at once.
# It also has these modules compiled from their source. It leaves out the standard library and installed packages.
# Written by ledger. Any Python can execute it, and no fault of it may reach the program.
def _begin(customized):
    import os, stat, sys

    own = os.path.dirname(os.path.abspath(__file__))
    # The program sees its own import path, and the `sitecustomize` that it would have had.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != own]
    target = os.environ.get("LEDGER_LOADED")
    if not target:
        return
    began = os.getcwd()
    # The program's folders: of its files, what is opened to read is listed. A path may lead to them by a link.
    folders = [folder for folder in os.environ.get("LEDGER_FOLDERS", began).split(":") if folder]
    for link in (os.environ.get("PWD"), os.environ.get("HOME")):
        real = os.path.realpath(link) if link else None
        if real and real != link and real != "/":
            folders += [link + folder[len(real) :] for folder in folders if (folder + os.sep).startswith(real + os.sep)]
    inside = tuple(folder + os.sep for folder in folders)
    installed = [own, os.path.dirname(os.__file__)]
    base = getattr(sys, "base_prefix", sys.prefix)
    # A virtual environment; and launchers such as `torchrun`.
    installed.append(sys.prefix if sys.prefix != base else os.path.join(base, "bin"))
    installed.append(os.path.abspath(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or own))
    installed = tuple(folder + os.sep for folder in installed)
    marks = ("/site-packages/", "/dist-packages/", "/lib_pypy/", "/torchinductor_", ".dist-info/", ".egg-info/")
    holds_packages = {}

    def _is_of_target(path):
        # `pip install --target` leaves the names and versions of its packages beside them.
        for entry in sys.path:
            # Python ignores entries of other types.
            if isinstance(entry, str) and entry not in ("", began) and path.startswith(entry + os.sep):
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

    def _list(paths, most_bytes):
        try:
            text = "".join(path + "\0" for path in paths)
            if text:
                handle = os.open(target, os.O_WRONLY | os.O_APPEND)
                try:
                    if os.fstat(handle).st_size < most_bytes:
                        os.write(handle, text.encode("utf-8", "surrogateescape"))
                finally:
                    os.close(handle)
        except Exception:
            pass

    # Of a process no more are listed.
    reads, most_reads = set(), 1000
    writes, most_writes = set(), 10000

    def _seen(kind, path):
        path = os.path.join(os.getcwd(), os.fsdecode(path))
        known, most = (reads, most_reads) if kind == "R" else (writes, most_writes)
        if path in known or len(known) >= most or not path.startswith(inside) or path == target or _is_installed(path):
            return
        # Hidden files, and those in hidden folders, are left out.
        rests = [os.sep + path[len(folder) :] for folder in inside if path.startswith(folder)]
        if all(os.sep + "." in rest.replace("/../", "/").replace("/./", "/") for rest in rests):
            return
        time = ""
        if kind == "R":
            status = os.stat(path)
            if not stat.S_ISREG(status.st_mode):
                return
            time = "%d " % status.st_mtime_ns
        known.add(path)
        # At once: a worker of `multiprocessing`, or a process that is killed, does not come to its end.
        _list([kind + time + path], 1 << 23)

    def _audit(event, arguments):
        try:
            if event == "open":
                path, mode, flags = arguments
                if isinstance(path, int):
                    return
                if mode is None:
                    is_read = flags & os.O_ACCMODE == os.O_RDONLY
                    is_write = not is_read
                else:
                    is_read, is_write = "r" in mode, any(letter in mode for letter in "wax+")
                if is_read:
                    _seen("R", path)
                if is_write:
                    _seen("W", path)
            elif event == "os.rename":
                _seen("W", arguments[1])
            # The loader looks for a bare name elsewhere.
            elif event == "ctypes.dlopen" and os.sep in arguments[0]:
                _seen("R", arguments[0])
        except (TypeError, ValueError, OSError, AttributeError):
            pass

    if hasattr(sys, "addaudithook"):
        sys.addaudithook(_audit)

    def _in_child():
        # A forked worker of `multiprocessing` ends without `atexit`.
        util = sys.modules.get("multiprocessing.util")
        if util:
            util.register_after_fork(_end, lambda end: util.Finalize(None, end, exitpriority=0))

    if hasattr(os, "register_at_fork"):
        # The parent may end without `atexit`, too.
        os.register_at_fork(before=lambda: _end(), after_in_child=_in_child)

    import atexit

    listed = set()

    @atexit.register
    def _end():
        try:
            paths = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
            # When a script ends, its module has no `__file__` any more.
            paths.extend(path for path in sys.argv[:1] if os.path.isfile(path))
            paths = set(os.path.join(began, path) for path in paths if isinstance(path, str))
            other = getattr(customized[0], "__file__", None)
            if other and not other.startswith(inside):
                paths.discard(other)
            paths = [path for path in paths if path not in listed and not _is_installed(path)]
            listed.update(paths)
            _list(sorted("L" + path for path in paths), 1 << 24)
        except Exception:
            pass

    # Python takes bytecode for current whose source has the same size and the same second of change: after a quick edit it would execute
    # the code before. Without valid bytecode it compiles the source.
    import importlib._bootstrap_external as bootstrap

    name = "_validate_timestamp_pyc" if hasattr(bootstrap, "_validate_timestamp_pyc") else "_validate_bytecode_header"
    validate = getattr(bootstrap, name)

    def _validate(*arguments, **named):
        details = arguments[4] if len(arguments) > 4 else named
        try:
            is_installed = _is_installed(details["path"])
        except Exception:
            is_installed = True
        if not is_installed:
            raise ImportError("local modules are compiled from their source")
        return validate(*arguments, **named)

    setattr(bootstrap, name, _validate)


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
