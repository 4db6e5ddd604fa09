//! Binds: files of the host that a manifest makes visible in a container, and the digests of those that the run loads.

use super::ContainerError;
use super::mounts::Mount;
use crate::host::mapped;
use crate::host::sums::{self, Stamp, Sums};
use crate::manifest::Bind;
use crate::record::{Cell, Table, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The cell's setting with its binds.
pub(in crate::engine) const BINDS: &str = "container.binds";
/// The name of the digest of CUDA's headers.
const HEADERS: &str = "headers";

/// The bound libraries that a run loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) enum Loads {
    /// The built-in trainer on a CPU.
    Nothing,
    /// The built-in trainer on GPUs: the libraries that it knows by name.
    Cuda {
        /// Whether it also loads NCCL, for several GPUs.
        nccl: bool,
    },
    /// An external program: all libraries whose versions can change results.
    Any,
}

impl Loads {
    fn takes(self, file_name: &str) -> bool {
        let Some((stem, _)) = file_name.split_once(".so") else { return false };
        match self {
            Self::Nothing => false,
            Self::Any => mapped::is_known(file_name),
            Self::Cuda { nccl } => {
                ["libnvrtc", "libnvrtc-builtins", "libcublasLt"].contains(&stem)
                    || stem.starts_with("libcudnn")
                    || nccl && stem == "libnccl"
            }
        }
    }
}

/// A bind as it was when a run was bound to it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Brought {
    pub(super) mount: Mount,
    /// The files that the run loads.
    files: Vec<BroughtFile>,
    /// The folders in the container that have libraries among these files.
    pub(super) folders: BTreeSet<PathBuf>,
}

#[derive(Clone, Debug, PartialEq)]
struct BroughtFile {
    source: PathBuf,
    target: PathBuf,
    kind: FileKind,
    sha256: String,
    stamp: Stamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileKind {
    Library,
    Header,
    /// A single bound file that the run does not load as a library.
    Other,
}

/// Reads the binds of a cell and the digests of the files that the run loads.
pub(super) fn brought(cell: &Cell, loads: Loads) -> Result<Vec<Brought>, ContainerError> {
    let mut all: Vec<Brought> = Vec::new();
    for (index, text) in texts(cell).into_iter().enumerate() {
        // Recorded binds were checked when the manifest was read.
        let bind = Bind::parse(&text, Path::new("/")).map_err(|why| ContainerError::NoBind { index, why })?;
        let source = bind.source.canonicalize().map_err(|error| {
            let why = format!(
                "has `{text}`, but `{}` cannot be bound: {error} (create it, or name another path: `HOST:{}`)",
                bind.source.display(),
                bind.target.display()
            );
            ContainerError::NoBind { index, why }
        })?;
        if all.iter().any(|other| other.mount.target == bind.target) {
            let why = format!("binds two paths at `{}` (remove one)", bind.target.display());
            return Err(ContainerError::NoBind { index, why });
        }
        let mount = Mount { source, target: bind.target, is_writable: bind.is_writable };
        all.push(Brought { mount, files: Vec::new(), folders: BTreeSet::new() });
    }
    let mut sums = Sums::of_user();
    all.iter_mut().try_for_each(|one| one.find(loads, &mut sums))?;
    sums.keep();
    Ok(all)
}

/// The binds in the settings of a cell.
pub(in crate::engine) fn texts(cell: &Cell) -> Vec<String> {
    match cell.get(BINDS) {
        Some(Value::List(texts)) => texts.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

impl Brought {
    /// Finds the files that the run loads, and computes their digests.
    fn find(&mut self, loads: Loads, sums: &mut Sums) -> Result<(), ContainerError> {
        let root = &self.mount.source;
        let mut found: BTreeMap<PathBuf, FileKind> = BTreeMap::new();
        for folder in library_folders(root) {
            for (name, file) in entries(&folder) {
                // A link out of the bind is broken in the container.
                let Ok(real) = file.canonicalize() else { continue };
                if loads.takes(&name) && real.starts_with(root) && real.is_file() {
                    self.folders.insert(self.inside(&folder));
                    found.insert(real, FileKind::Library);
                }
            }
        }
        if matches!(loads, Loads::Cuda { .. }) {
            found.extend(headers(root).into_iter().map(|header| (header, FileKind::Header)));
        }
        if root.is_file() {
            let is_loaded = self.mount.target.file_name().is_some_and(|name| loads.takes(&name.to_string_lossy()));
            found.insert(root.clone(), if is_loaded { FileKind::Library } else { FileKind::Other });
            self.folders.extend(self.mount.target.parent().filter(|_| is_loaded).map(Path::to_owned));
        }
        let failed = |path: &Path, error| ContainerError::UnreadBind { path: path.to_owned(), error };
        let opened: Vec<File> =
            found.keys().map(|path| File::open(path).map_err(|error| failed(path, error))).collect::<Result<_, _>>()?;
        let computed = sums.of_all(&opened.iter().collect::<Vec<_>>(), &|| false);
        for ((source, kind), sum) in found.into_iter().zip(computed) {
            let (sha256, stamp) = sum.map_err(|error| failed(&source, error))?;
            let target = self.inside(&source);
            self.files.push(BroughtFile { source, target, kind, sha256, stamp });
        }
        Ok(())
    }

    /// The path in the container of a path of the host.
    fn inside(&self, path: &Path) -> PathBuf {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        match real.strip_prefix(&self.mount.source) {
            Ok(rest) if !rest.as_os_str().is_empty() => self.mount.target.join(rest),
            _ => self.mount.target.clone(),
        }
    }

    /// Checks that no file has changed.
    pub(super) fn check(&self, is_over: &(dyn Fn() -> bool + Sync)) -> Result<(), ContainerError> {
        self.files.iter().try_for_each(|file| super::unchanged(&file.source, &file.stamp, &file.sha256, is_over))
    }

    /// The fact that is recorded about the bind.
    pub(super) fn fact(&self) -> Value {
        let mut fact: Table = [("source".to_owned(), self.mount.source.display().to_string().into())].into();
        fact.insert("access".to_owned(), if self.mount.is_writable { "read and write" } else { "read" }.into());
        let others = self.files.iter().filter(|file| file.kind == FileKind::Other);
        fact.extend(others.map(|file| ("sha256".to_owned(), file.sha256.as_str().into())));
        fact.extend(digests(std::slice::from_ref(self)));
        fact.into()
    }
}

/// The digests of the bound files that a run loads: `libraries` by file name, or by path in the container if the name
/// occurs twice, and one digest of all headers. Empty if there are none.
pub(super) fn digests(all: &[Brought]) -> Table {
    let (mut libraries, mut headers) = (Table::new(), String::new());
    for file in all.iter().flat_map(|one| &one.files) {
        let path = file.target.display().to_string();
        match file.kind {
            FileKind::Other => {}
            FileKind::Header => headers.push_str(&format!("{}  {path}\n", file.sha256)),
            FileKind::Library => {
                let name = file.target.file_name().map(|name| name.to_string_lossy().into_owned());
                let name = name.filter(|name| !libraries.contains_key(name)).unwrap_or(path);
                libraries.insert(name, format!("sha256:{}", file.sha256).into());
            }
        }
    }
    let headers = (!headers.is_empty()).then(|| format!("sha256:{}", sums::sha256(headers.as_bytes())).into());
    let libraries = (!libraries.is_empty()).then(|| libraries.into());
    let named = [("libraries", libraries), (HEADERS, headers)];
    named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// The folders of a bind that may have libraries: itself, and `lib` and `lib64` in it and in folders down to the second
/// level, as in CUDA's `targets/x86_64-linux/lib` and the wheels' `nvidia/cudnn/lib`. In each of them also this
/// processor's folder.
fn library_folders(root: &Path) -> BTreeSet<PathBuf> {
    let mut parents = vec![root.to_owned()];
    let mut level = parents.clone();
    for _ in 0..2 {
        level = level.iter().flat_map(|folder| folders(folder)).collect();
        parents.extend(level.clone());
    }
    let usual = parents.iter().flat_map(|parent| ["lib", "lib64"].map(|name| parent.join(name)));
    let usual: Vec<PathBuf> = usual.chain([root.to_owned()]).collect();
    let of_processor = usual.iter().map(|folder| folder.join(format!("{}-linux-gnu", std::env::consts::ARCH)));
    let all = usual.iter().cloned().chain(of_processor).filter(|folder| folder.is_dir());
    all.filter_map(|folder| folder.canonicalize().ok()).filter(|folder| folder.starts_with(root)).collect()
}

/// The CUDA headers that the run-time compiler includes: those in `include` and `include/crt`.
fn headers(root: &Path) -> Vec<PathBuf> {
    let include = root.join("include");
    if !include.join("cuda_fp16.h").is_file() {
        return Vec::new();
    }
    let files = [include.clone(), include.join("crt")].into_iter().flat_map(|folder| entries(&folder));
    let is_header = |name: &str| name.ends_with(".h") || name.ends_with(".hpp");
    let real = files.filter(|(name, _)| is_header(name)).filter_map(|(_, file)| file.canonicalize().ok());
    real.filter(|file| file.starts_with(root) && file.is_file()).collect()
}

/// The entries of a folder by name. An unreadable folder has none, because the run cannot read it either.
fn entries(folder: &Path) -> Vec<(String, PathBuf)> {
    let read = fs::read_dir(folder).into_iter().flatten().flatten();
    read.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path())).collect()
}

fn folders(folder: &Path) -> Vec<PathBuf> {
    entries(folder).into_iter().map(|(_, path)| path).filter(|path| path.is_dir() && !path.is_symlink()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder like an installed CUDA, with some files that are not loaded.
    fn cuda(root: &Path) {
        for (name, content) in [
            ("targets/x86_64-linux/lib/libnvrtc.so.13.0.88", "nvrtc"),
            ("targets/x86_64-linux/lib/libnvrtc-builtins.so.13.0.88", "builtins"),
            ("targets/x86_64-linux/lib/libnvrtc.alt.so.13.0.88", "not loaded"),
            ("targets/x86_64-linux/lib/libcufft.so.12", "fft"),
            ("targets/x86_64-linux/lib/stubs/libcublasLt.so", "a stub"),
            ("targets/x86_64-linux/include/cuda_fp16.h", "half"),
            ("targets/x86_64-linux/include/crt/mma.h", "matrices"),
            ("bin/nvcc", "not loaded"),
        ] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let link = |to: &str, at: &str| std::os::unix::fs::symlink(to, root.join(at)).unwrap();
        link("targets/x86_64-linux/lib", "lib64");
        link("targets/x86_64-linux/include", "include");
        link("libnvrtc.so.13.0.88", "targets/x86_64-linux/lib/libnvrtc.so");
        link("/etc/passwd", "targets/x86_64-linux/lib/libcudnn.so.9");
    }

    fn of(binds: &[String], loads: Loads) -> Result<Vec<Brought>, ContainerError> {
        let binds: Vec<Value> = binds.iter().map(|bind| bind.as_str().into()).collect();
        let settings: Table = [(BINDS.to_owned(), Value::List(binds))].into();
        brought(&Cell { settings, ..Cell::default() }, loads)
    }

    #[test]
    fn the_libraries_that_a_run_loads_have_digests() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap().join("cuda-13.0");
        cuda(&root);
        let bind = [format!("{}:/usr/local/cuda:ro", root.display())];
        let digest = |text: &str| format!("sha256:{}", sums::sha256(text.as_bytes()));
        let found = of(&bind, Loads::Cuda { nccl: false }).unwrap();
        let told = digests(&found);
        let libraries: Table = [("libnvrtc.so.13.0.88", "nvrtc"), ("libnvrtc-builtins.so.13.0.88", "builtins")]
            .map(|(name, content)| (name.to_owned(), digest(content).into()))
            .into();
        assert_eq!(told["libraries"], libraries.into());
        assert!(told[HEADERS].as_str().is_some_and(|headers| headers.len() == 71), "{told:?}");
        let folder = Path::new("/usr/local/cuda/targets/x86_64-linux/lib");
        assert_eq!(found[0].folders.iter().collect::<Vec<_>>(), [folder]);
        // Two machines may have the same CUDA in different places.
        let other = dir.path().canonicalize().unwrap().join("elsewhere");
        cuda(&other);
        let there = of(&[format!("{}:/usr/local/cuda", other.display())], Loads::Cuda { nccl: false }).unwrap();
        assert_eq!(digests(&there), told);
        fs::write(other.join("include/crt/mma.h"), "others").unwrap();
        let there = of(&[format!("{}:/usr/local/cuda", other.display())], Loads::Cuda { nccl: false }).unwrap();
        assert_eq!(
            (&digests(&there)["libraries"], digests(&there)[HEADERS] == told[HEADERS]),
            (&told["libraries"], false)
        );
        // A CPU loads none of it, and another program may load every library whose name is known.
        assert!(digests(&of(&bind, Loads::Nothing).unwrap()).is_empty());
        let any = digests(&of(&bind, Loads::Any).unwrap());
        assert_eq!(any["libraries"].as_table().map(Table::len), Some(4), "{any:?}");
    }

    #[test]
    fn a_bound_file_has_a_digest_and_its_change_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let file = root.join("libcudnn.so.9.14.0");
        fs::write(&file, "one").unwrap();
        let bind = [format!("{}:/opt/libcudnn.so.9", file.display())];
        let found = of(&bind, Loads::Cuda { nccl: false }).unwrap();
        assert_eq!(found[0].folders.iter().collect::<Vec<_>>(), [Path::new("/opt")]);
        assert!(digests(&found)["libraries"].as_table().is_some_and(|names| names.contains_key("libcudnn.so.9")));
        assert!(found[0].fact().to_string().contains("access = read"), "{}", found[0].fact());
        // A file that the run does not load is recorded, but not in the identity.
        let other = of(&bind, Loads::Nothing).unwrap();
        assert!(digests(&other).is_empty() && other[0].fact().to_string().contains(&sums::sha256(b"one")));
        found[0].check(&|| false).unwrap();
        fs::write(&file, "two").unwrap();
        let said = found[0].check(&|| false).unwrap_err().to_string();
        assert!(said.contains("libcudnn.so.9.14.0` changed after its digest was taken: its digest is "), "{said}");
    }

    #[test]
    fn a_missing_or_duplicate_bind_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().display();
        let said = |binds: &[String]| of(binds, Loads::Nothing).unwrap_err().to_string();
        let missing = said(&[format!("{root}"), format!("{root}/none:/opt/x")]);
        assert!(missing.contains("none` cannot be bound: No such file"), "{missing}");
        assert!(missing.ends_with("(create it, or name another path: `HOST:/opt/x`)"), "{missing}");
        let twice = said(&[format!("{root}:/x"), format!("{root}:/x:rw")]);
        assert_eq!(twice, "`container.binds` binds two paths at `/x` (remove one)");
    }
}
