# Prints the local files and the installed distributions that a Python program imports, as triples of texts that end with NUL.
# Started as `python -I -S -c TEXT ROOTS...`: no module of the program is imported, and no code of its environment is executed.
import ast, os, re, sys
from importlib import machinery, util

KIND, ROOT, FOLDER, FLAGS, EXTRA, INNER_KIND, INNER = sys.argv[1:8]
FOUND = []


def say(kind, name, value):
    FOUND.append((kind, name, value))


def version_directory():
    kind = "pypy" if sys.implementation.name == "pypy" else "python"
    return "%s%d.%d" % (kind, sys.version_info[0], sys.version_info[1])


def environment_of(executable):
    """The folder of the virtual environment that the executable belongs to, and whether it shows the system's packages."""
    for folder in (os.path.dirname(executable), os.path.dirname(os.path.dirname(executable))):
        config = os.path.join(folder, "pyvenv.cfg")
        if os.path.isfile(config):
            with open(config, encoding="utf-8", errors="replace") as lines:
                text = lines.read().lower()
            return folder, re.search(r"include-system-site-packages\s*=\s*true", text) is not None
    return None, True


def editable_roots(folder, name):
    """The packages that an editable installation maps to folders by a module of its own, which is read and not imported."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            tree = ast.parse(file.read())
        for node in tree.body:
            targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
            if any(isinstance(target, ast.Name) and target.id == "MAPPING" for target in targets):
                for package, place in ast.literal_eval(node.value).items():
                    EDITABLE.setdefault(package, place)
    except Exception:
        pass


def site_directory(folder, path):
    """Adds a folder of installed packages, and the folders that its .pth files name."""
    if folder in path or not os.path.isdir(folder):
        return
    path.append(folder)
    SITES.add(os.path.realpath(folder))
    for name in sorted(os.listdir(folder)):
        if name.startswith("__editable__") and name.endswith("_finder.py"):
            editable_roots(folder, name)
        if not name.endswith(".pth") or name.startswith("."):
            continue
        try:
            with open(os.path.join(folder, name), encoding="utf-8-sig", errors="replace") as lines:
                entries = [line.strip() for line in lines]
        except OSError:
            continue
        for entry in entries:
            entry_path = os.path.join(folder, entry)
            if entry and not entry.startswith(("#", "import ", "import\t")) and os.path.exists(entry_path):
                if entry_path not in path:
                    path.append(entry_path)


def search_path(kind, root):
    """The `sys.path` of a program that begins there."""
    path = []
    if "P" not in FLAGS and "I" not in FLAGS:
        own = os.path.dirname(os.path.realpath(os.path.join(FOLDER, root))) if kind == "script" else FOLDER
        path.append(own)
    if "E" not in FLAGS and "I" not in FLAGS:
        for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep):
            if entry:
                path.append(os.path.join(FOLDER, entry))
    path.extend(sys.path)
    if "S" in FLAGS:
        return path
    import site

    venv, shows_system = environment_of(os.path.abspath(sys.executable))
    wants_user = "s" not in FLAGS and "I" not in FLAGS and not os.environ.get("PYTHONNOUSERSITE")
    if venv:
        for library in ("lib", "lib64"):
            site_directory(os.path.join(venv, library, version_directory(), "site-packages"), path)
    if shows_system:
        if wants_user:
            site_directory(site.getusersitepackages(), path)
        prefixes = [sys.base_prefix, sys.base_exec_prefix] if venv else [sys.prefix, sys.exec_prefix]
        for folder in site.getsitepackages(prefixes):
            site_directory(folder, path)
    return path


SITES, EDITABLE = set(), {}
STANDARD = os.path.realpath(os.path.dirname(os.__file__))
PATH = search_path(KIND, ROOT)
IMPORTERS = {}


def importer(entry):
    if entry not in IMPORTERS:
        IMPORTERS[entry] = None
        for hook in sys.path_hooks:
            try:
                IMPORTERS[entry] = hook(entry)
                break
            except ImportError:
                continue
    return IMPORTERS[entry]


def find(name, path):
    """Origin, folders of submodules and import root of a module; None if there is none. Imports nothing."""
    portions, root = [], None
    for entry in path:
        finder = importer(entry)
        try:
            spec = finder.find_spec(name) if finder else None
        except Exception:
            spec = None
        if spec is None:
            continue
        if spec.loader is not None:
            return spec.origin, list(spec.submodule_search_locations or []), entry
        portions.extend(spec.submodule_search_locations or [])
        root = root or entry
    return (None, portions, root) if portions else None


def in_site(folder):
    return os.path.realpath(folder) in SITES


def is_standard(origin):
    place = os.path.realpath(origin)
    return place.startswith(STANDARD + os.sep) and not re.search(r"[/\\](site|dist)-packages[/\\]", place)


class Distributions:
    """The installed distributions by the names of their modules, read when they are needed first."""

    def __init__(self):
        self.by_module = None

    def read(self):
        self.by_module = {}
        try:
            from importlib import metadata
        except ImportError:
            say("note", "packages", "this Python has no importlib.metadata")
            return
        seen = set()
        # The program's own folder has distributions too: `pip install -t .`.
        for entry in PATH:
            try:
                found = list(metadata.distributions(path=[entry]))
            except Exception:
                continue
            for distribution in found:
                try:
                    name = distribution.metadata["Name"]
                    if not name:
                        continue
                    plain = re.sub(r"[-_.]+", "-", name).lower()
                    place = getattr(distribution, "_path", None)
                    folder = os.path.dirname(str(place)) if place else entry
                    # An egg-info beside sources is a development installation: its files are local.
                    if not in_site(folder) and not str(place).endswith(".dist-info"):
                        continue
                    if plain in seen:
                        continue
                    seen.add(plain)
                    top = (distribution.read_text("top_level.txt") or "").split()
                    if not top:
                        for file in distribution.files or []:
                            first = file.parts[0]
                            if len(file.parts) == 1:
                                first = first.split(".")[0] if file.suffix in (".py", ".so", ".pyd") else ""
                            if first and not first.endswith((".dist-info", ".egg-info", ".data")) and first != "..":
                                top.append(first)
                    for module in set(top):
                        self.by_module.setdefault(module, []).append((plain, distribution, os.path.realpath(folder)))
                except Exception:
                    continue

    def owner(self, module, origin, root):
        """The distributions that an imported file belongs to."""
        if self.by_module is None:
            self.read()
        place = os.path.realpath(root)
        known = [one for one in self.by_module.get(module.split(".")[0], []) if one[2] == place]
        if len(known) > 1 and origin:
            wanted = os.path.realpath(origin)

            def holds(distribution):
                try:
                    return any(os.path.realpath(str(distribution.locate_file(f))) == wanted for f in distribution.files or [])
                except Exception:
                    return False

            known = [one for one in known if holds(one[1])] or known
        return known


DISTRIBUTIONS = Distributions()
SEEN, QUEUE, RESOLVED = set(), [], {}


def text_of(value):
    return str(value or "unknown")


def take_file(origin, module, root, locations):
    """Keeps a local file; its own imports are looked at later."""
    place = origin
    while place and not os.path.isfile(place) and os.path.dirname(place) != place:
        place = os.path.dirname(place)  # A module in an archive.
    if not os.path.isfile(place):
        return
    if place not in SEEN:
        SEEN.add(place)
        say("file", place, root)
        if origin.endswith((".py", ".pyw")) and place == origin:
            package = module if locations else module.rpartition(".")[0]
            QUEUE.append((origin, package))


def resolve(name):
    """Finds a module by its full name, its parents first; the folders of its submodules, or None if there is no such local module."""
    if name in RESOLVED:
        return RESOLVED[name]
    RESOLVED[name] = None
    parent, _, _ = name.rpartition(".")
    if parent:
        path = resolve(parent)
        if not path:
            return None
    else:
        if name in sys.builtin_module_names:
            return None
        path = PATH
    found = find(name, path)
    if found is None and not parent and name in EDITABLE:
        place = EDITABLE[name]
        found = find(name, [os.path.dirname(place)])
    if found is None:
        return None
    origin, locations, root = found
    if origin in ("built-in", "frozen") or (origin and is_standard(origin)):
        return None
    top = root if not parent else ROOTS.get(name.split(".")[0], root)
    if not parent:
        ROOTS[name] = root
    owners = DISTRIBUTIONS.owner(name, origin, top)
    if origin is None:
        # A namespace package has no file: what is imported from it tells.
        RESOLVED[name] = locations
        return locations
    if owners:
        for plain, distribution, _ in owners:
            say("package", plain, text_of(distribution.version))
        RESOLVED[name] = None if not NAMESPACED(owners, name) else locations
        return RESOLVED[name]
    take_file(origin, name, top, locations)
    RESOLVED[name] = locations
    return locations


def NAMESPACED(owners, name):
    # Several distributions share a package that has an `__init__`: each submodule is asked for its own.
    return len(DISTRIBUTIONS.by_module.get(name.split(".")[0], [])) > 1


ROOTS = {}


def wanted_by(tree, package):
    """The full names of the modules that a file imports, with what it takes from them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, []
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".") if package else []
                if node.level - 1 > len(parts) or not package:
                    continue
                parts = parts[: len(parts) - (node.level - 1)]
                base = ".".join(parts + ([node.module] if node.module else []))
            if base:
                yield base, [alias.name for alias in node.names]
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            first = node.args[0] if node.args else None
            text = getattr(first, "value", None) if isinstance(first, ast.Constant) else None
            if not isinstance(text, str) or not text:
                continue
            if called in ("import_module", "__import__", "run_module"):
                try:
                    name = util.resolve_name(text, package) if text.startswith(".") else text
                except (ImportError, ValueError):
                    continue
                yield name, []
            elif called == "run_path":
                path = os.path.join(FOLDER, text)
                if os.path.isfile(path):
                    take_file(path, "__main__", FOLDER, [])


def all_of(locations):
    """The names that `from package import *` imports, as its `__init__` lists them."""
    for folder in locations:
        try:
            with open(os.path.join(folder, "__init__.py"), "rb") as file:
                tree = ast.parse(file.read())
        except Exception:
            continue
        for node in tree.body:
            if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "__all__" for target in node.targets):
                try:
                    return [name for name in ast.literal_eval(node.value) if isinstance(name, str)]
                except ValueError:
                    return []
    return []


def take_imports(tree, package):
    for name, members in wanted_by(tree, package):
        locations = resolve(name)
        if not locations:
            continue
        if "*" in members:
            members = all_of(locations)
        for member in members:
            resolve(name + "." + member)


def begin(kind, root):
    """Takes a program; whether any file of it is local."""
    if kind == "code":
        take_imports(ast.parse(root), "")
    elif kind == "module":
        locations = resolve(root)
        if locations:
            resolve(root + ".__main__")
        return bool(SEEN)
    else:
        place = os.path.abspath(os.path.join(FOLDER, root))
        take_file(place, "__main__", FOLDER, [])
        if not place.endswith((".py", ".pyw")) and place in SEEN:
            QUEUE.append((place, ""))  # A script is one whatever its name ends in.
    return True


def start():
    global PATH
    # A module that is not local, such as `cProfile`, starts the program among its arguments.
    if not begin(KIND, ROOT) and INNER_KIND:
        PATH = search_path(INNER_KIND, INNER)
        PATH.extend(entry for entry in [FOLDER] if entry not in PATH)
        RESOLVED.clear(), ROOTS.clear()
        DISTRIBUTIONS.by_module = None
        begin(INNER_KIND, INNER)
    for name in EXTRA.split(","):
        if name:
            resolve(name)
    while QUEUE:
        path, package = QUEUE.pop()
        try:
            with open(path, "rb") as file:
                text = file.read()
            take_imports(ast.parse(text, path), package)
        except (SyntaxError, ValueError) as error:
            say("note", path, "line %s: %s" % (getattr(error, "lineno", 0), getattr(error, "msg", error)))
        except (OSError, RecursionError) as error:
            say("note", path, str(error))


sys.setrecursionlimit(10000)
say("python", sys.implementation.name, sys.version.split()[0])
try:
    start()
except (SyntaxError, ValueError) as error:
    say("note", "-c", str(error))
out = b"".join(os.fsencode(text) + b"\0" for triple in sorted(set(FOUND)) for text in triple)
sys.stdout.buffer.write(out)
