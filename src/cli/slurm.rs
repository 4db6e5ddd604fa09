//! Slurm requests: flags, the manifest's `[slurm]` and the profile of a site.

use super::failure::{Failure, exit};
use super::provenance::directory;
use crate::cluster::Request;
use crate::host::environment;
use crate::manifest::{self, Manifest};
use crate::record::{Cell, Table, Value};
use std::path::{Path, PathBuf};

/// The keys of `[slurm]` that flags give.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Slurm options")]
pub(super) struct SlurmArgs {
    /// The site profile: `~/.config/ledger/sites/NAME.toml`
    #[arg(long, value_name = "NAME")]
    site: Option<String>,

    /// sbatch's --partition
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,

    /// sbatch's --account
    #[arg(long, value_name = "NAME")]
    account: Option<String>,

    /// sbatch's --qos
    #[arg(long, value_name = "NAME")]
    qos: Option<String>,

    /// sbatch's --constraint
    #[arg(long, value_name = "FEATURES")]
    constraint: Option<String>,

    /// Time limit of a task
    #[arg(long, value_name = "TIME")]
    time: Option<String>,

    /// GPUs of a task [default: as many as its cells need]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=64))]
    gpus_per_task: Option<u32>,

    /// The GPU type, as the site names it
    #[arg(long, value_name = "KIND")]
    gpu_type: Option<String>,

    /// Processors of a task
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    cpus_per_task: Option<u32>,

    /// Memory of a task
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,

    /// Run at most N tasks at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    array_limit: Option<u32>,

    /// Execute N cells in each task, one after the other
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    cells_per_task: Option<u32>,

    /// Run the cells in this image instead of the manifest's; `host` means no image
    #[arg(long, value_name = "IMAGE")]
    container: Option<PathBuf>,

    /// A further option of sbatch; may be repeated
    #[arg(long = "option", value_name = "OPTION", allow_hyphen_values = true)]
    options: Vec<String>,
}

impl SlurmArgs {
    /// Returns the cell with its image: from the flag, or else its own, or else the site's. A relative path in the flag
    /// starts in the current folder.
    pub(super) fn contained(&self, cell: &Cell, request: &Request) -> Cell {
        let mut cell = cell.clone();
        let is_bare = matches!(cell.text("container.image"), None | Some("host"));
        let usual = request.container.as_ref().filter(|_| is_bare);
        if let Some(image) = self.container.as_ref().or(usual) {
            let is_path = image.as_os_str() != "host" && !image.display().to_string().contains("://");
            let absolute = if is_path { std::path::absolute(image).ok() } else { None };
            let image = absolute.as_ref().unwrap_or(image).display().to_string();
            if image == "host" {
                cell.settings.remove("container.binds");
            }
            cell.settings.insert("container.image".to_owned(), image.into());
        }
        cell
    }

    fn table(&self) -> Table {
        let texts = [
            ("site", &self.site),
            ("partition", &self.partition),
            ("account", &self.account),
            ("qos", &self.qos),
            ("constraint", &self.constraint),
            ("time", &self.time),
            ("gpu_type", &self.gpu_type),
            ("memory", &self.memory),
        ];
        let numbers = [
            ("gpus_per_task", self.gpus_per_task),
            ("cpus_per_task", self.cpus_per_task),
            ("array_limit", self.array_limit),
            ("cells_per_task", self.cells_per_task),
        ];
        let mut table = Table::new();
        table.extend(texts.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text.clone()?.into()))));
        table.extend(numbers.into_iter().filter_map(|(key, number)| Some((key.to_owned(), number?.into()))));
        if !self.options.is_empty() {
            table.insert("options".to_owned(), self.options.clone().into());
        }
        table
    }
}

/// Returns the table with absolute paths: `~` is the home folder, and relative paths start in `base`.
fn anchored(table: &Table, base: &Path) -> Result<Table, Failure> {
    let mut table = table.clone();
    for (key, may_be_name) in manifest::SLURM_PATHS {
        let Some(text) = table.get(key).and_then(Value::as_str) else { continue };
        let is_word =
            may_be_name && !text.contains('/') || key == "container" && (text == "host" || text.contains("://"));
        if is_word && !text.starts_with('~') {
            continue;
        }
        let path = match text.strip_prefix('~') {
            None => base.join(text),
            Some(rest) => {
                let home = environment::var("HOME").filter(|_| rest.is_empty() || rest.starts_with('/'));
                let home = home.map(PathBuf::from).filter(|home| home.is_absolute()).ok_or_else(|| {
                    let said = format!("slurm.{key} is `{text}`, but its home folder is unknown (give the full path)");
                    Failure::new(exit::USAGE, said)
                })?;
                home.join(rest.trim_start_matches('/'))
            }
        };
        let path = std::path::absolute(&path).unwrap_or(path).display().to_string();
        table.insert(key.to_owned(), path.into());
    }
    Ok(table)
}

/// Returns the request from flags, manifest and site.
pub(super) fn request(args: &SlurmArgs, manifest: &Manifest) -> Result<Request, Failure> {
    let flags = args.table();
    let own = &anchored(&manifest.slurm, &directory(manifest))?;
    let site = flags.get("site").or_else(|| own.get("site")).and_then(Value::as_str);
    let profile = match site {
        None => Table::new(),
        Some(name) if name.is_empty() || name.contains('/') || name.starts_with('.') => {
            let said = format!("`{name}` is not a site's name (a site is a file `~/.config/ledger/sites/NAME.toml`)");
            return Err(Failure::new(exit::USAGE, said));
        }
        Some(name) => {
            let path = environment::site_profile(name)
                .ok_or_else(|| Failure::new(exit::USAGE, "HOME is not set, so the site's profile cannot be found"))?;
            anchored(&manifest::load_site(&path)?, Path::new("/"))?
        }
    };
    let request = Request::merged(&[&flags, own, &profile]);
    let checked = request.and_then(|request| request.check_time().map(|()| request));
    checked.map_err(|error| Failure::new(exit::USAGE, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args;
    use std::collections::BTreeSet;

    #[test]
    fn the_docs_list_the_keys_without_a_flag() {
        let command = SlurmArgs::augment_args(clap::Command::new("submit"));
        let flags: BTreeSet<&str> = command.get_arguments().filter_map(clap::Arg::get_long).collect();
        let of = |key: &str| if key == "options" { "option".to_owned() } else { key.replace('_', "-") };
        let schema = manifest::schema();
        let section = |table: &Value, name: &str| table.as_table().unwrap()[name].clone();
        let keys = ["properties", "slurm", "properties"].iter().fold(schema, |at, name| section(&at, name));
        let without: BTreeSet<String> =
            keys.as_table().unwrap().keys().filter(|key| !flags.contains(of(key).as_str())).cloned().collect();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/slurm.md");
        let docs = std::fs::read_to_string(path).unwrap();
        let told = docs.lines().find_map(|line| line.split_once(" have no flag")).unwrap().0;
        let told: BTreeSet<String> = told.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        assert_eq!(told, without);
    }
}
