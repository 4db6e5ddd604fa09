//! Calls the version functions of NVIDIA's libraries, the only direct foreign calls in this crate.

use libloading::{Library, Symbol};
use std::ffi::{CStr, OsStr, c_int};
use std::path::{Path, PathBuf};

/// A shared library loaded to query its version. It is unloaded on drop.
pub(super) struct Loaded(Library);

impl Loaded {
    /// Loads a library by a path, or by a name that the dynamic loader searches for.
    pub fn open(name: &OsStr) -> Result<Self, libloading::Error> {
        // SAFETY: loading runs the library's initialisers. Only NVIDIA's own libraries are loaded here, by the names under which
        // Burn would load them a moment later; their initialisers are made to be run by any program.
        #[expect(unsafe_code, reason = "libraries that may be absent can only be loaded at run time")]
        unsafe { Library::new(name) }.map(Self)
    }

    /// Returns the file that the kernel has mapped for a library's name.
    pub fn path(name: &str) -> Option<PathBuf> {
        mapped(&std::fs::read_to_string("/proc/self/maps").ok()?, name)
    }

    /// Returns NVRTC's version, major and minor, or `None` if the function is missing or fails.
    pub fn nvrtc_version(&self) -> Option<(u32, u32)> {
        type NvrtcVersion = unsafe extern "C" fn(major: *mut c_int, minor: *mut c_int) -> c_int;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the type is that of `nvrtcResult nvrtcVersion(int *major, int *minor)` in nvrtc.h since CUDA 7, an enum of C
        // being an `int`; both pointers are valid for the call, and the library outlives it.
        #[expect(unsafe_code, reason = "a function of a library that is loaded at run time")]
        let result = unsafe {
            let function: Symbol<'_, NvrtcVersion> = self.0.get(c"nvrtcVersion").ok()?;
            function(&raw mut major, &raw mut minor)
        };
        (result == 0).then(|| Some((u32::try_from(major).ok()?, u32::try_from(minor).ok()?)))?
    }

    /// Returns NCCL's version number, such as 22803, or `None` if the function is missing or fails.
    pub fn nccl_version(&self) -> Option<u32> {
        type NcclVersion = unsafe extern "C" fn(version: *mut c_int) -> c_int;
        let mut version = 0;
        // SAFETY: the type is that of `ncclResult_t ncclGetVersion(int *version)` in nccl.h since NCCL 2; as above.
        #[expect(unsafe_code, reason = "a function of a library that is loaded at run time")]
        let result = unsafe {
            let function: Symbol<'_, NcclVersion> = self.0.get(c"ncclGetVersion").ok()?;
            function(&raw mut version)
        };
        (result == 0).then(|| u32::try_from(version).ok())?
    }

    /// Returns cuBLASLt's version number, such as 130100, or `None` if the function is missing.
    pub fn cublaslt_version(&self) -> Option<u32> {
        self.number(c"cublasLtGetVersion")
    }

    /// Returns cuDNN's version number, such as 91400, or `None` if the function is missing.
    pub fn cudnn_version(&self) -> Option<u32> {
        self.number(c"cudnnGetVersion")
    }

    fn number(&self, name: &CStr) -> Option<u32> {
        type Version = unsafe extern "C" fn() -> usize;
        // SAFETY: the type is that of `size_t cublasLtGetVersion(void)` in cublasLt.h since CUDA 10.1 and of `size_t
        // cudnnGetVersion(void)` in cudnn.h; as above.
        #[expect(unsafe_code, reason = "a function of a library that is loaded at run time")]
        let version = unsafe {
            let function: Symbol<'_, Version> = self.0.get(name).ok()?;
            function()
        };
        u32::try_from(version).ok()
    }
}

/// Returns the mapped file whose name is `name`, or `name` followed by a dot: library names are links to files that
/// carry the full version.
fn mapped(maps: &str, name: &str) -> Option<PathBuf> {
    let file = Path::new(name).file_name()?.to_str()?;
    let fits = |path: &Path| {
        let found = path.file_name().and_then(OsStr::to_str).and_then(|found| found.strip_prefix(file));
        found.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    // The path is the sixth column and the only one that begins with a slash. It may contain spaces.
    maps.lines()
        .filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])))
        .find(|path| fits(path))
        .map(Path::to_owned)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::process::Command;

    /// Builds a library that needs those in `links`, with the linker that building this crate requires anyway.
    pub(crate) fn build(path: &Path, source: &str, links: &[&Path]) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let c = path.with_extension("c");
        std::fs::write(&c, source).unwrap();
        let mut command = Command::new("cc");
        command.args(["-shared", "-fPIC", "-Wl,--no-as-needed", "-o"]).arg(path).arg(&c).args(links);
        assert!(command.status().unwrap().success());
    }

    #[test]
    fn versions_are_read_from_the_library() {
        let dir = tempfile::tempdir().unwrap();
        let source = "int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 2; return 0; }
                      int ncclGetVersion(int *version) { *version = 22803; return 0; }";
        let path = dir.path().join("libfake.so");
        build(&path, source, &[]);
        let loaded = Loaded::open(path.as_os_str()).unwrap();
        assert_eq!(loaded.nvrtc_version(), Some((13, 2)));
        assert_eq!(loaded.nccl_version(), Some(22803));
        assert_eq!(Loaded::path("libfake.so"), Some(path));
    }

    #[test]
    fn a_failing_or_foreign_library_has_no_version() {
        let dir = tempfile::tempdir().unwrap();
        let source = "int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 2; return 5; }
                      int ncclGetVersion(int *version) { *version = -1; return 0; }";
        let path = dir.path().join("libfake.so");
        build(&path, source, &[]);
        let loaded = Loaded::open(path.as_os_str()).unwrap();
        assert_eq!((loaded.nvrtc_version(), loaded.nccl_version()), (None, None));
        let foreign = Loaded::open(OsStr::new("libc.so.6")).unwrap();
        assert_eq!((foreign.nvrtc_version(), foreign.nccl_version()), (None, None));
        assert!(Loaded::open(dir.path().join("missing.so").as_os_str()).is_err());
    }

    #[test]
    fn mapped_files_are_found_by_name() {
        let maps = "7f00-7f01 r--p 0 08:01 5    /usr/lib/libnvrtc-builtins.so.13.0\n\
                    7f01-7f02 r--p 0 08:01 6    /opt/a b/libnvrtc.so.13.0.88\n7f02-7f03 rw-p 0 00:00 0\n";
        assert_eq!(mapped(maps, "libnvrtc.so"), Some(PathBuf::from("/opt/a b/libnvrtc.so.13.0.88")));
        assert_eq!(mapped(maps, "libnvrtc.so.13"), Some(PathBuf::from("/opt/a b/libnvrtc.so.13.0.88")));
        assert_eq!(mapped(maps, "libnvrtc.so.1"), None);
        assert_eq!(mapped("", "libnvrtc.so"), None);
    }
}
