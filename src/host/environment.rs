//! Environment variables: the only place where they are read.
//!
//! An attempt records those that can affect a run's results or speed, by an allow-list, without secrets.

use super::secrets::{redacted as without_secrets, without_known};
use ledger_record::{Table, Value};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Variables recorded by their whole name.
const NAMES: &[&str] = &[
    "BLIS_NUM_THREADS",
    "GLIBC_TUNABLES",
    "GOMP_CPU_AFFINITY",
    "HOSTNAME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "MALLOC_ARENA_MAX",
    "MALLOC_CONF",
    "NUMEXPR_NUM_THREADS",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES",
    "PATH",
    "PYTHONHASHSEED",
    "PYTHONPATH",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "RUST_MIN_STACK",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_CLUSTER_NAME",
    "SLURM_CPUS_ON_NODE",
    "SLURM_CPUS_PER_TASK",
    "SLURM_GPUS_ON_NODE",
    "SLURM_JOB_GPUS",
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_QOS",
    "SLURM_LOCALID",
    "SLURM_MEM_PER_NODE",
    "SLURM_NODEID",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "SLURM_RESTART_COUNT",
    "SLURM_STEP_GPUS",
    "SLURM_STEP_ID",
    "VIRTUAL_ENV",
];

/// Variables recorded by the beginning of their name.
const PREFIXES: &[&str] = &[
    "APPTAINER_",
    "BURN_",
    "CUBECL_",
    "CUBLAS",
    "CUDA_",
    "CUDNN_",
    "GOTO_NUM_THREADS",
    "KMP_",
    "MIMALLOC_",
    "MKL_",
    "NCCL_",
    "OMP_",
    "OPENBLAS_",
    "PYTORCH_",
    "RAYON_",
    "SINGULARITY_",
    "TORCH_",
    "UCX_",
    "XLA_",
];

/// Words that mark a variable as a secret, whose value is never recorded.
pub(super) const SECRET: &[&str] =
    &["TOKEN", "SECRET", "KEY", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "AUTH", "JWT", "COOKIE"];

/// The maximum number of characters recorded of a value; below, the maximum number of variables.
const MOST_CHARS: usize = 4096;
const MOST_VARIABLES: usize = 256;

/// Values shorter than this are also searched for secrets by the names before them.
const MOST_JUDGED: usize = 32 << 10;

/// The text that replaces a secret in a record.
pub const REDACTED: &str = "(redacted)";

/// Returns the value of a variable, or `None` if it is unset or empty.
pub fn var(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the value of a variable as text, with invalid UTF-8 replaced. A set but empty variable is `Some("")`.
///
/// For variables in which an empty value has a meaning, such as `CUDA_VISIBLE_DEVICES`.
pub fn text_var(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Returns all variables unchanged, to pass on to a worker. They must never be recorded.
pub fn all() -> Vec<(OsString, OsString)> {
    std::env::vars_os().collect()
}

/// Returns the variables to record, by name and without secrets: at most 256, each with at most 4096 characters.
pub fn recorded() -> Table {
    recorded_of(std::env::vars_os())
}

/// As [`recorded`], of these variables.
pub fn recorded_of(vars: impl IntoIterator<Item = (OsString, OsString)>) -> Table {
    let texts = vars.into_iter().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        let allowed = NAMES.contains(&name.as_str()) || PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        allowed.then(|| (name, value.to_string_lossy().into_owned()))
    });
    let mut table: Table =
        texts.map(|(name, value)| (redacted(&name, &value), name)).map(|(value, name)| (name, value)).collect();
    while table.len() > MOST_VARIABLES {
        table.pop_last();
    }
    table
}

fn redacted(name: &str, value: &str) -> Value {
    // A longer text is searched for known forms of secrets only: as one long line it would be redacted whole.
    let clean = |value: &str| if value.len() < MOST_JUDGED { without_secrets(value) } else { without_known(value) };
    if is_secret(name) { REDACTED.into() } else { cut(clean(value)).into() }
}

/// Whether a variable's name marks its value as a secret.
pub fn is_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    SECRET.iter().any(|word| upper.contains(word))
}

/// Truncates a text. Secrets must be removed before, because half of one is not recognised.
fn cut(text: String) -> String {
    match text.char_indices().nth(MOST_CHARS) {
        Some((at, _)) => format!("{}… ({} bytes in all)", &text[..at], text.len()),
        None => text,
    }
}

/// Removes the credentials between `://` and `@` from every URL in a text.
pub fn without_credentials(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        clean.push_str(before);
        clean.push_str("://");
        let end = after.find(['/', '?', '#', ' ', ',', ';', '\n', '"', '\'']).unwrap_or(after.len());
        let (authority, beyond) = after.split_at(end);
        match authority.rsplit_once('@') {
            Some((_, host)) => {
                clean.push_str(REDACTED);
                clean.push('@');
                clean.push_str(host);
            }
            None => clean.push_str(authority),
        }
        rest = beyond;
    }
    clean.push_str(rest);
    clean
}

/// The places that determine a ledger's directory, besides the current directory.
#[derive(Clone, Debug, Default)]
pub struct LedgerPlaces {
    /// `$LEDGER_DIR`.
    pub ledger_dir: Option<PathBuf>,
    /// `$XDG_DATA_HOME`. A relative path is ignored, as its specification demands.
    pub xdg_data_home: Option<PathBuf>,
    /// `$HOME`.
    pub home: Option<PathBuf>,
}

impl LedgerPlaces {
    /// Reads the places from the environment.
    pub fn of_environment() -> Self {
        let path = |name| var(name).map(PathBuf::from);
        Self { ledger_dir: path("LEDGER_DIR"), xdg_data_home: path("XDG_DATA_HOME"), home: path("HOME") }
    }
}

/// Returns the ledger's directory, which need not exist: the explicit one, else `$LEDGER_DIR`, else the nearest
/// `ledger/` in `start` or above it that is a ledger or empty, else `ledger/` in the user's data directory. A ledger
/// contains `ledger.redb`, `journal/`, `reference/` or `slurm/`.
pub fn find_ledger(explicit: Option<&Path>, start: &Path) -> PathBuf {
    find_ledger_in(&LedgerPlaces::of_environment(), explicit, start)
}

/// As [`find_ledger`], in these places.
pub fn find_ledger_in(places: &LedgerPlaces, explicit: Option<&Path>, start: &Path) -> PathBuf {
    if let Some(path) = explicit.or(places.ledger_dir.as_deref()) {
        return path.to_owned();
    }
    let start = std::path::absolute(start).unwrap_or_else(|_| start.to_owned());
    if let Some(found) = start.ancestors().map(|above| above.join("ledger")).find(|path| is_ledger(path)) {
        return found;
    }
    let data = places.xdg_data_home.clone().filter(|path| path.is_absolute());
    let data = data.or_else(|| Some(places.home.as_ref()?.join(".local/share")));
    data.unwrap_or(start).join("ledger")
}

fn is_ledger(path: &Path) -> bool {
    path.join("ledger.redb").is_file()
        || ["journal", "reference", "slurm"].iter().any(|name| path.join(name).is_dir())
        // An empty folder was made for a new ledger.
        || std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// Returns the path of a site's profile, `ledger/sites/NAME.toml` in the user's configuration directory, or `None`
/// without such a directory. The file need not exist.
pub fn site_profile(name: &str) -> Option<PathBuf> {
    Some(user_folder("XDG_CONFIG_HOME", ".config")?.join("ledger/sites").join(format!("{name}.toml")))
}

/// Returns the folder that an XDG variable names, else this one in the user's home. Paths that are not absolute are
/// ignored.
pub(super) fn user_folder(variable: &str, in_home: &str) -> Option<PathBuf> {
    let path = |name| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
    path(variable).or_else(|| Some(path("HOME")?.join(in_home)))
}

/// Returns the program that a shell would start by this name.
pub fn which(name: &str) -> Option<PathBuf> {
    which_in(name, &var("PATH")?)
}

/// As [`which`], along this `PATH`. A name with a slash is a path already.
pub fn which_in(name: &str, path: &OsStr) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| executable(path));
    }
    std::env::split_paths(path).map(|directory| directory.join(name)).find(|path| executable(path))
}

fn executable(path: &Path) -> bool {
    path.is_file() && accessat(CWD, path, Access::EXEC_OK, AtFlags::empty()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn record(vars: &[(&str, &str)]) -> Table {
        recorded_of(vars.iter().map(|(name, value)| ((*name).into(), (*value).into())))
    }

    #[test]
    fn only_allowed_variables_are_recorded() {
        let table = record(&[
            ("CUDA_VISIBLE_DEVICES", ""),
            ("NCCL_NVLS_ENABLE", "0"),
            ("SLURM_JOB_ID", "12"),
            ("SLURM_JWT", "eyJhbGciOi"),
            ("HOME", "/home/somebody"),
            ("AWS_SECRET_ACCESS_KEY", "xyzzy"),
            ("MY_CUDA_THING", "1"),
        ]);
        let names: Vec<_> = table.keys().map(String::as_str).collect();
        assert_eq!(names, ["CUDA_VISIBLE_DEVICES", "NCCL_NVLS_ENABLE", "SLURM_JOB_ID"]);
        assert_eq!(table["CUDA_VISIBLE_DEVICES"], "".into());
    }

    #[test]
    fn secrets_are_never_recorded() {
        let secrets = ["CUDA_TOKEN", "NCCL_SECRET", "TORCH_API_KEY", "BURN_PASSWORD", "APPTAINER_DOCKER_Password"];
        for name in secrets {
            let table = record(&[(name, "xyzzy")]);
            assert_eq!(table[name], REDACTED.into(), "{name}");
        }
        // Tokens are recognised whatever the variable's name.
        let table = record(&[("CUDA_X", "a,ghp_abcdef0123456789abcdef0123"), ("NCCL_Y", "https://me:pw@host")]);
        assert_eq!((&table["CUDA_X"], &table["NCCL_Y"]), (&"a,(redacted)".into(), &"https://(redacted)@host".into()));
    }

    #[test]
    fn recorded_variables_are_limited_in_number_and_length() {
        let long = "x".repeat(1 << 20);
        let many: Vec<String> = (0..1000).map(|number| format!("CUDA_{number:04}")).collect();
        let table = record(&many.iter().map(|name| (name.as_str(), long.as_str())).collect::<Vec<_>>());
        assert_eq!(table.len(), MOST_VARIABLES);
        let value = table["CUDA_0000"].as_str().unwrap();
        assert!(value.ends_with("x… (1048576 bytes in all)") && value.len() < 4200, "{}", value.len());
        let url = format!("{}https://user:hunter2@host", "y".repeat(MOST_CHARS - 12));
        let kept = record(&[("CUDA_URL", &url)])["CUDA_URL"].to_string();
        assert!(!kept.contains("user") && !kept.contains("hunter2"), "{kept}");
    }

    #[test]
    fn urls_lose_their_credentials() {
        let cases = [
            ("http://user:pass@host:80/a@b", "http://(redacted)@host:80/a@b"),
            ("https://token@host", "https://(redacted)@host"),
            ("a=http://u:p@w@h/x,b=ftp://v:q@i", "a=http://(redacted)@h/x,b=ftp://(redacted)@i"),
            ("http://host/path?mail=a@b", "http://host/path?mail=a@b"),
            ("no url, a@b", "no url, a@b"),
            ("://@", "://(redacted)@"),
            ("", ""),
        ];
        for (text, clean) in cases {
            assert_eq!(without_credentials(text), clean);
        }
        let path = record(&[("PYTHONPATH", "/a:https://h/p?token=a1b2c3d4e5f6:/b")]);
        assert!(!path["PYTHONPATH"].as_str().unwrap().contains("a1b2c3"), "{path:?}");
        assert_eq!(record(&[("CUBECL_PROXY", "http://u:p@h")])["CUBECL_PROXY"], "http://(redacted)@h".into());
    }

    #[test]
    fn a_ledger_is_found_in_the_documented_order() {
        let dir = tempfile::tempdir().unwrap();
        let start = dir.path().join("project/deep/deeper");
        fs::create_dir_all(&start).unwrap();
        let home = dir.path().join("home");
        let mut places = LedgerPlaces { home: Some(home.clone()), ..LedgerPlaces::default() };
        assert_eq!(find_ledger_in(&places, None, &start), home.join(".local/share/ledger"));
        places.xdg_data_home = Some("relative".into());
        assert_eq!(find_ledger_in(&places, None, &start), home.join(".local/share/ledger"));
        places.xdg_data_home = Some(dir.path().join("data"));
        assert_eq!(find_ledger_in(&places, None, &start), dir.path().join("data/ledger"));

        let upward = dir.path().join("project/ledger");
        fs::create_dir_all(&upward).unwrap();
        assert_eq!(find_ledger_in(&places, None, &start), upward, "an empty one");
        fs::write(upward.join("README"), "any directory of that name").unwrap();
        assert_eq!(find_ledger_in(&places, None, &start), dir.path().join("data/ledger"));
        fs::create_dir(upward.join("reference")).unwrap();
        assert_eq!(find_ledger_in(&places, None, &start), upward);
        let nearer = dir.path().join("project/deep/ledger");
        fs::create_dir_all(nearer.join("journal")).unwrap();
        assert_eq!(find_ledger_in(&places, None, &start), nearer);
        let nearest = start.join("ledger");
        fs::create_dir(&nearest).unwrap();
        fs::write(nearest.join("ledger.redb"), "").unwrap();
        assert_eq!(find_ledger_in(&places, None, &start), nearest);

        places.ledger_dir = Some("by/variable".into());
        assert_eq!(find_ledger_in(&places, None, &start), Path::new("by/variable"));
        assert_eq!(find_ledger_in(&places, Some(Path::new("by/hand")), &start), Path::new("by/hand"));
    }

    #[test]
    fn without_a_home_the_ledger_is_in_the_current_directory() {
        let dir = tempfile::tempdir().unwrap();
        let found = find_ledger_in(&LedgerPlaces::default(), None, dir.path());
        assert_eq!(found, dir.path().join("ledger"));
    }

    #[test]
    fn which_finds_the_first_executable() {
        let dir = tempfile::tempdir().unwrap();
        for (name, mode) in [("a", 0o644), ("b", 0o755), ("c", 0o755)] {
            fs::create_dir(dir.path().join(name)).unwrap();
            let program = dir.path().join(name).join("tool");
            fs::write(&program, "").unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir_all(dir.path().join("d/tool")).unwrap();
        let path = std::env::join_paths(["d", "missing", "a", "b", "c"].map(|name| dir.path().join(name))).unwrap();
        assert_eq!(which_in("tool", &path), Some(dir.path().join("b/tool")));
        assert_eq!(which_in("other", &path), None);
        let direct = dir.path().join("c/tool");
        assert_eq!(which_in(direct.to_str().unwrap(), OsStr::new("")), Some(direct));
    }
}
