//! The survey of CUDA inside a container, as a document for the program that started the container.

use super::CudaVersions;
use super::libraries::{Item, LibraryEnv, names, survey};
use super::loader::Loaded;
use ledger_record::{Table, Value};
use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsStr;

/// A library that every part of cuDNN needs, with more dependencies than cuDNN's first library.
const OF_CUDNN: &str = "libcudnn_graph.so.9";

/// The result of the survey of libraries and headers for training on GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SurveyReport {
    /// The files that are missing or cannot be loaded, each with the loader's reason, if it has one beyond that.
    pub missing: BTreeMap<String, String>,
    /// The libraries' versions.
    pub versions: CudaVersions,
}

/// Surveys all files as the trainer finds them. Also loads a second library that NVRTC and cuDNN load later. No GPU is
/// used.
pub fn report(env: &LibraryEnv) -> SurveyReport {
    let survey = survey(env);
    let mut missing = BTreeMap::new();
    for (name, item) in survey.items() {
        let part = match name {
            "libnvrtc.so" => survey.nvrtc_version.map(|(major, minor)| format!("libnvrtc-builtins.so.{major}.{minor}")),
            "libcudnn.so" => Some(OF_CUDNN.to_owned()),
            _ => None,
        };
        let found = match item {
            Item::Missing { .. } => Err(reason(env, name)),
            Item::Found { .. } => part.map_or(Ok(()), |part| open(env, &part)),
        };
        if let Err(why) = found {
            missing.insert(name.to_owned(), why);
        }
    }
    SurveyReport { missing, versions: survey.versions(None) }
}

/// Returns the loader's reason why an existing file of a library could not be loaded, or an empty text if no file
/// exists.
fn reason(env: &LibraryEnv, name: &str) -> String {
    let stem = name.strip_prefix("lib").and_then(|name| name.split_once(".so")).map(|(stem, _)| stem);
    let faults = stem.map(names).unwrap_or_default().into_iter().filter_map(|name| {
        // Skips the loader's message that this very file does not exist.
        open(env, &name).err().filter(|why| !why.contains(&format!("{name}: cannot open")))
    });
    faults.into_iter().next().unwrap_or_default()
}

fn open(env: &LibraryEnv, name: &str) -> Result<(), String> {
    let mut paths = env.library_path.iter().map(|folder| folder.join(name));
    let path = paths.find(|path| path.is_file());
    let loaded = match &path {
        Some(path) => Loaded::open(path.as_os_str()),
        None if env.ask_loader => Loaded::open(OsStr::new(name)),
        None => return Err(format!("{name}: cannot open shared object file")),
    };
    // The source holds the loader's own text.
    loaded.map(drop).map_err(|error| error.source().map_or_else(|| error.to_string(), ToString::to_string))
}

impl SurveyReport {
    /// Returns the report as a document.
    pub fn to_value(&self) -> Value {
        let missing: Table = self.missing.iter().map(|(name, why)| (name.clone(), why.as_str().into())).collect();
        let two = |(a, b): (u32, u32)| vec![a, b];
        let three = |(a, b, c): (u32, u32, u32)| vec![a, b, c];
        let CudaVersions { nvrtc, cublaslt, cudnn, nccl, driver_api: _ } = self.versions;
        let versions = [
            ("nvrtc", nvrtc.map(two)),
            ("cublaslt", cublaslt.map(three)),
            ("cudnn", cudnn.map(three)),
            ("nccl", nccl.map(three)),
        ];
        let versions = versions.into_iter().filter_map(|(name, numbers)| {
            let numbers = numbers?.into_iter().map(|number| Value::Int(number.into())).collect();
            Some((name.to_owned(), Value::List(numbers)))
        });
        let versions: Table = versions.collect();
        Value::Table([("missing".to_owned(), missing.into()), ("versions".to_owned(), versions.into())].into())
    }

    /// Reads a report from a document, or returns `None` if it is something else.
    pub fn of_value(value: &Value) -> Option<Self> {
        let table = value.as_table()?;
        let missing = table.get("missing")?.as_table()?;
        let missing = missing.iter().map(|(name, why)| Some((name.clone(), why.as_str()?.to_owned())));
        let versions = table.get("versions")?.as_table()?;
        let numbers = |name: &str| match versions.get(name) {
            Some(Value::List(list)) => list.iter().map(|one| u32::try_from(one.as_int()?).ok()).collect(),
            _ => None::<Vec<u32>>,
        };
        let three = |name: &str| <[u32; 3]>::try_from(numbers(name)?).ok().map(|[a, b, c]| (a, b, c));
        let versions = CudaVersions {
            driver_api: None,
            nvrtc: numbers("nvrtc").and_then(|list| <[u32; 2]>::try_from(list).ok()).map(|[a, b]| (a, b)),
            cublaslt: three("cublaslt"),
            cudnn: three("cudnn"),
            nccl: three("nccl"),
        };
        Some(Self { missing: missing.collect::<Option<_>>()?, versions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::tests::build;

    #[test]
    fn a_library_that_lacks_another_is_missing_for_that_reason() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let env = LibraryEnv {
            library_path: vec![dir.path().to_owned()],
            cuda_path: None,
            cuda_roots: vec![at("cuda")],
            ask_loader: false,
        };
        build(&at("libnvrtc.so.13"), "int nvrtcVersion(int *a, int *b) { *a = 13; *b = 0; return 0; }", &[]);
        build(&at("libother-of-this-test.so"), "int other;", &[]);
        build(
            &at("libcudnn.so.9"),
            "unsigned long cudnnGetVersion(void) { return 91400; }",
            &[&at("libother-of-this-test.so")],
        );
        build(&at("libcublasLt.so"), "unsigned long cublasLtGetVersion(void) { return 130100; }", &[]);
        std::fs::remove_file(at("libother-of-this-test.so")).unwrap();
        let found = report(&env);
        assert!(found.missing["libnvrtc.so"].contains("libnvrtc-builtins.so.13.0: cannot open"), "{found:?}");
        assert!(found.missing["libcudnn.so"].contains("libother-of-this-test.so: cannot open"), "{found:?}");
        assert_eq!(found.missing["mma.h"], "");
        assert!(!found.missing.contains_key("libcublasLt.so"));
        assert_eq!((found.versions.nvrtc, found.versions.cublaslt), (Some((13, 0)), Some((13, 1, 0))));
        assert_eq!(SurveyReport::of_value(&found.to_value()), Some(found));
        assert_eq!(SurveyReport::of_value(&"no report".into()), None);
    }
}
