//! Finds the files, besides the kernel driver, that training through CUDA needs.

use super::loader::Loaded;
use super::{CudaVersions, Gpus};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The CUDA major version of the compiled-in bindings; see `CUDARC_CUDA_VERSION` in `.cargo/config.toml`.
const BOUND_MAJOR: u32 = 13;

/// The places to search for libraries and headers, from the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryEnv {
    /// The directories of `LD_LIBRARY_PATH`, which the dynamic loader searches first.
    pub library_path: Vec<PathBuf>,
    /// `CUDA_PATH`. If it is set, headers are searched only there.
    pub cuda_path: Option<PathBuf>,
    /// The usual installation directories of CUDA, in search order.
    pub cuda_roots: Vec<PathBuf>,
    /// Whether to ask the dynamic loader as well, which searches the system's directories.
    pub ask_loader: bool,
}

impl LibraryEnv {
    /// Returns the usual places, with these values of `LD_LIBRARY_PATH` and `CUDA_PATH`.
    pub fn usual(ld_library_path: Option<&OsStr>, cuda_path: Option<&OsStr>) -> Self {
        let directories = ld_library_path.map(std::env::split_paths).into_iter().flatten();
        let mut cuda_roots: Vec<PathBuf> = ["/usr/local/cuda", "/opt/cuda"].map(PathBuf::from).into();
        if Path::new("/usr/bin/nvcc").exists() {
            cuda_roots.push("/usr".into());
        }
        Self {
            library_path: directories.filter(|directory| !directory.as_os_str().is_empty()).collect(),
            cuda_path: cuda_path.map(PathBuf::from),
            cuda_roots,
            ask_loader: true,
        }
    }

    /// CUDA's directory by the rule of Burn's CUDA backend: `CUDA_PATH`, whether it exists or not, or the first root
    /// that exists.
    fn cuda_root(&self) -> Option<&Path> {
        self.cuda_path.as_deref().or_else(|| self.cuda_roots.iter().map(PathBuf::as_path).find(|root| root.exists()))
    }
}

/// The result of searching for one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The file exists.
    Found {
        /// The file; for a library that the dynamic loader found, the file that it mapped.
        path: PathBuf,
    },
    /// The file does not exist.
    Missing {
        /// The searched places, as text.
        looked_in: String,
        /// The suggested fix.
        fix: String,
    },
}

impl Item {
    /// Returns the file, if it was found.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Found { path } => Some(path),
            Self::Missing { .. } => None,
        }
    }
}

/// The files found for training through CUDA, with their versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibrarySurvey {
    /// The driver's library, `libcuda.so.1`.
    pub libcuda: Item,
    /// The run-time compiler NVRTC, `libnvrtc.so`.
    pub nvrtc: Item,
    /// Its version, major and minor.
    pub nvrtc_version: Option<(u32, u32)>,
    /// The header for half precision, `cuda_fp16.h`.
    pub cuda_fp16: Item,
    /// The header for tensor cores, `mma.h`.
    pub mma: Item,
    /// The matrix multiplication library cuBLASLt, `libcublasLt.so`.
    pub cublaslt: Item,
    /// Its version, major, minor and patch.
    pub cublaslt_version: Option<(u32, u32, u32)>,
    /// The convolution library cuDNN, `libcudnn.so`.
    pub cudnn: Item,
    /// Its version, major, minor and patch.
    pub cudnn_version: Option<(u32, u32, u32)>,
    /// The multi-GPU communication library NCCL, `libnccl.so.2`.
    pub nccl: Item,
    /// Its version, major, minor and patch.
    pub nccl_version: Option<(u32, u32, u32)>,
}

impl LibrarySurvey {
    /// Returns all items with their file names.
    pub fn items(&self) -> [(&'static str, &Item); 7] {
        [
            ("libcuda.so.1", &self.libcuda),
            ("libnvrtc.so", &self.nvrtc),
            ("cuda_fp16.h", &self.cuda_fp16),
            ("mma.h", &self.mma),
            ("libcublasLt.so", &self.cublaslt),
            ("libcudnn.so", &self.cudnn),
            ("libnccl.so.2", &self.nccl),
        ]
    }

    /// Returns the versions that enter a run's identity.
    pub fn versions(&self, gpus: Option<&Gpus>) -> CudaVersions {
        CudaVersions {
            driver_api: gpus.and_then(|gpus| gpus.cuda_driver_version().ok()),
            nvrtc: self.nvrtc_version,
            cublaslt: self.cublaslt_version,
            cudnn: self.cudnn_version,
            nccl: self.nccl_version,
        }
    }
}

/// Searches for all files, and briefly loads libraries to query their versions. No GPU is used.
pub fn survey(env: &LibraryEnv) -> LibrarySurvey {
    let (libcuda, _) = library(env, "cuda", "install the NVIDIA driver, or start the container with the GPUs");
    let fix = "install CUDA's run-time compiler (package cuda-nvrtc-13-0, or pip's nvidia-cuda-nvrtc) and add its directory to LD_LIBRARY_PATH";
    let (nvrtc, loaded) = library(env, "nvrtc", fix);
    let nvrtc_version = loaded.and_then(|library| library.nvrtc_version());
    let fix =
        "install cuBLAS (package libcublas-13-0, or pip's nvidia-cublas) and add its directory to LD_LIBRARY_PATH";
    let (cublaslt, loaded) = library(env, "cublasLt", fix);
    let cublaslt_version = loaded.and_then(|library| library.cublaslt_version()).map(split);
    let fix = "install cuDNN 9 (package libcudnn9-cuda-13, or pip's nvidia-cudnn-cu13) and add its directory to LD_LIBRARY_PATH";
    let (cudnn, loaded) = library(env, "cudnn", fix);
    let cudnn_version = loaded.and_then(|library| library.cudnn_version()).map(split);
    let fix = "install NCCL (package libnccl2, or pip's nvidia-nccl-cu13) and add its directory to LD_LIBRARY_PATH";
    let (nccl, loaded) = named(env, &NCCL_NAMES.map(str::to_owned), fix);
    let nccl_version = loaded.and_then(|library| library.nccl_version()).map(split_nccl);
    LibrarySurvey {
        libcuda,
        nvrtc,
        nvrtc_version,
        cuda_fp16: header(env, "cuda_fp16.h"),
        mma: header(env, "mma.h"),
        cublaslt,
        cublaslt_version,
        cudnn,
        cudnn_version,
        nccl,
        nccl_version,
    }
}

/// NCCL's names, in the order in which the trainer tries them.
const NCCL_NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// Returns the names by which cudarc 0.19 searches for a library, in its order (`cudarc::get_lib_name_candidates`).
pub(super) fn names(stem: &str) -> Vec<String> {
    let major = BOUND_MAJOR;
    let infixes = [
        String::new(),
        "64".into(),
        format!("64_{major}"),
        format!("64_{major}0"),
        format!("64_{major}0_0"),
        "64_10".into(),
        "64_11".into(),
        "64_12".into(),
        "64_9".into(),
    ];
    let plain = infixes.iter().map(|infix| format!("lib{stem}{infix}.so"));
    let numbered = [major, 12, 11, 10, 9, 1].map(|number| format!("lib{stem}.so.{number}"));
    plain.chain(numbered).collect()
}

fn library(env: &LibraryEnv, stem: &str, fix: &str) -> (Item, Option<Loaded>) {
    named(env, &names(stem), fix)
}

/// Searches in the dynamic loader's order: each name in the directories of `LD_LIBRARY_PATH`, then through the loader.
fn named(env: &LibraryEnv, names: &[String], fix: &str) -> (Item, Option<Loaded>) {
    for name in names {
        // The loader, too, skips files that cannot be loaded, such as those for another processor.
        for path in env.library_path.iter().map(|directory| directory.join(name)).filter(|path| path.is_file()) {
            if let Ok(loaded) = Loaded::open(path.as_os_str()) {
                return (Item::Found { path }, Some(loaded));
            }
        }
        if env.ask_loader
            && let Ok(loaded) = Loaded::open(OsStr::new(name))
        {
            let path = Loaded::path(name).unwrap_or_else(|| name.into());
            return (Item::Found { path }, Some(loaded));
        }
    }
    let mut places: Vec<String> = env.library_path.iter().map(|directory| directory.display().to_string()).collect();
    if env.ask_loader {
        places.push("the system's library directories".to_owned());
    }
    let looked_in = if places.is_empty() { "nowhere".to_owned() } else { places.join(", ") };
    let first = names.first().map_or("it", String::as_str);
    (Item::Missing { looked_in: format!("{first} in {looked_in}"), fix: fix.to_owned() }, None)
}

fn header(env: &LibraryEnv, name: &str) -> Item {
    let fix = "install CUDA's headers (packages cuda-cudart-dev-13-0 and cuda-crt-13-0) and set CUDA_PATH to the directory that holds `include`";
    let looked_in = match env.cuda_root() {
        Some(root) => {
            let path = root.join("include").join(name);
            if path.is_file() {
                return Item::Found { path };
            }
            path.display().to_string()
        }
        None => {
            let roots: Vec<String> =
                env.cuda_roots.iter().map(|root| root.join("include").join(name).display().to_string()).collect();
            roots.join(", ")
        }
    };
    Item::Missing { looked_in, fix: fix.to_owned() }
}

/// Splits a version that is 10,000 × major + 100 × minor + patch (`CUBLAS_VERSION` in cublas_api.h; `CUDNN_VERSION` in
/// cudnn_version.h since cuDNN 9).
fn split(version: u32) -> (u32, u32, u32) {
    (version / 10_000, version % 10_000 / 100, version % 100)
}

/// Splits NCCL's version. The major number counts 10,000 from version 2.9 on, 1,000 before (`NCCL_VERSION` in nccl.h).
fn split_nccl(version: u32) -> (u32, u32, u32) {
    let unit = if version < 10_000 { 1000 } else { 10_000 };
    (version / unit, version % unit / 100, version % 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::tests::build;
    use std::fs;

    fn env(root: &Path) -> LibraryEnv {
        LibraryEnv {
            library_path: vec![root.join("a"), root.join("b")],
            cuda_path: None,
            cuda_roots: vec![root.join("cuda"), root.join("opt")],
            ask_loader: false,
        }
    }

    #[test]
    fn missing_files_are_reported_with_places_and_fixes() {
        let root = tempfile::tempdir().unwrap();
        let survey = survey(&env(root.path()));
        let LibrarySurvey { libcuda, nvrtc, cuda_fp16, mma, cublaslt, cudnn, nccl, .. } = &survey;
        for item in [libcuda, nvrtc, cuda_fp16, mma, cublaslt, cudnn, nccl] {
            let Item::Missing { looked_in, fix } = item else { panic!("{item:?}") };
            assert!(looked_in.contains(root.path().to_str().unwrap()), "{looked_in}");
            assert!(!fix.is_empty());
        }
        let Item::Missing { looked_in, .. } = nccl else { panic!("{nccl:?}") };
        assert!(looked_in.starts_with("libnccl.so.2 in "), "the trainer's first: {looked_in}");
        assert_eq!((survey.nvrtc_version, survey.nccl_version), (None, None));
        assert_eq!(survey.versions(None), CudaVersions::default());
    }

    #[test]
    fn libraries_are_found_in_the_loaders_order_with_their_version() {
        let root = tempfile::tempdir().unwrap();
        let (a, b) = (root.path().join("a"), root.path().join("b"));
        let version = |major| format!("int nvrtcVersion(int *a, int *b) {{ *a = {major}; *b = 1; return 0; }}");
        build(&a.join("libnvrtc.so.12"), &version(12), &[]);
        build(&b.join("libnvrtc.so.13"), &version(13), &[]);
        let found = survey(&env(root.path()));
        assert_eq!(
            found.nvrtc.path(),
            Some(b.join("libnvrtc.so.13").as_path()),
            "the name counts before the directory"
        );
        assert_eq!(found.nvrtc_version, Some((13, 1)));
        fs::write(a.join("libnvrtc.so"), "no library").unwrap();
        assert_eq!(survey(&env(root.path())), found, "what cannot be loaded is passed over");
    }

    #[test]
    fn nccl_is_found_under_the_name_that_packages_ship_first() {
        let root = tempfile::tempdir().unwrap();
        let version = |number| format!("int ncclGetVersion(int *v) {{ *v = {number}; return 0; }}");
        let (link, real) = (root.path().join("a/libnccl.so"), root.path().join("b/libnccl.so.2"));
        build(&link, &version(21_904), &[]);
        assert_eq!(survey(&env(root.path())).nccl_version, Some((2, 19, 4)));
        build(&real, &version(22_803), &[]);
        let found = survey(&env(root.path()));
        assert_eq!((found.nccl.path(), found.nccl_version), (Some(real.as_path()), Some((2, 28, 3))));
    }

    #[test]
    fn headers_are_searched_where_burn_searches_them() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        put("opt/include/mma.h");
        put("own/include/cuda_fp16.h");
        let mut env = env(root.path());
        assert_eq!(survey(&env).mma.path(), Some(root.path().join("opt/include/mma.h").as_path()));
        assert_eq!(survey(&env).cuda_fp16.path(), None);
        // The first root that exists hides later ones, even if it lacks the file.
        fs::create_dir(root.path().join("cuda")).unwrap();
        assert_eq!(survey(&env).mma.path(), None);
        env.cuda_path = Some(root.path().join("own"));
        assert_eq!(survey(&env).cuda_fp16.path(), Some(root.path().join("own/include/cuda_fp16.h").as_path()));
        assert_eq!(survey(&env).mma.path(), None);
    }

    #[test]
    fn candidate_names_are_those_of_cudarc() {
        let none = LibraryEnv { library_path: vec![], cuda_path: None, cuda_roots: vec![], ask_loader: true };
        // `libm.so` would not do here: it may be missing or a linker script, and `libm.so.6` is not among the candidate
        // names.
        let (item, _) = library(&none, "no-library-of-this-name", "fix");
        assert_eq!(item.path(), None);
        assert!(names("cuda").contains(&"libcuda.so.1".to_owned()));
        assert!(!names("nccl").contains(&"libnccl.so.2".to_owned()));
    }

    #[test]
    fn cublaslt_and_cudnn_report_their_versions() {
        let root = tempfile::tempdir().unwrap();
        let version = |name: &str, number| format!("unsigned long {name}(void) {{ return {number}; }}");
        build(&root.path().join("a/libcublasLt.so.13"), &version("cublasLtGetVersion", 130_100), &[]);
        build(&root.path().join("b/libcudnn.so.9"), &version("cudnnGetVersion", 91_400), &[]);
        let found = survey(&env(root.path()));
        assert_eq!(found.cublaslt.path(), Some(root.path().join("a/libcublasLt.so.13").as_path()));
        assert_eq!((found.cublaslt_version, found.cudnn_version), (Some((13, 1, 0)), Some((9, 14, 0))));
        assert_eq!(found.versions(None).cudnn, Some((9, 14, 0)));
    }

    #[test]
    fn nccl_version_numbers_are_split() {
        assert_eq!(split_nccl(22803), (2, 28, 3));
        assert_eq!(split_nccl(20900), (2, 9, 0));
        assert_eq!(split_nccl(2804), (2, 8, 4));
    }

    #[test]
    fn usual_places_follow_the_environment() {
        let usual = LibraryEnv::usual(Some(OsStr::new("/x:/y::")), Some(OsStr::new("/cuda")));
        assert_eq!(usual.library_path, [PathBuf::from("/x"), PathBuf::from("/y")]);
        assert_eq!(usual.cuda_root(), Some(Path::new("/cuda")));
        assert!(LibraryEnv::usual(None, None).library_path.is_empty());
    }
}
