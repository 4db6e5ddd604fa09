//! `ledger cache`

use super::context::{Context, read_file, write_new};
use super::failure::{Failure, exit};
use crate::engine::{KernelCache, KernelCacheError};
use crate::record::{Table, Value};
use crate::report::{bytes, columns, table_of};
use std::path::{Path, PathBuf};

/// List, export, import or remove compiled and tuned kernels
///
/// The first run on a GPU compiles and tunes kernels for minutes. They are stored for each GPU model, driver, CUDA
/// and trainer, and used for no other. `export` and `import` move them to another machine with the same
/// four. Kernels are code: import them only from people whose programs you would run.
///
/// Example: ledger cache export 41c0 -o h200.kernels
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the stored kernels
    Ls,
    /// Write kernels into one portable file
    Export {
        /// The key or a prefix of it; optional if only one key is stored
        key: Option<String>,

        /// The file, which must not exist yet [default: the key with `.kernels`]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Import kernels from files that `export` wrote
    Import {
        /// The files
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,

        /// Replace stored kernels that have the same key
        #[arg(long)]
        force: bool,
    },
    /// Remove kernels; the next run on such a GPU compiles and tunes them again
    Rm {
        /// The key or a prefix of it
        key: String,
    },
}

pub(super) fn run(args: &Args, context: &Context) -> Result<u8, Failure> {
    let ledger = context.store_as_it_is().dir();
    match &args.command {
        Command::Ls => answer(context, &KernelCache::list(ledger)?, None),
        Command::Export { key, output } => {
            let cache = KernelCache::find(ledger, key.as_deref().unwrap_or_default())?;
            let content = cache.export()?;
            let path = output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.kernels", cache.key)));
            write_new(&path, &content)?;
            answer(context, &[cache], Some(&path))
        }
        Command::Import { files, force } => {
            let mut imported = Vec::new();
            for path in files {
                let content = read_file(path)?;
                let cache = KernelCache::import(ledger, &content, *force).map_err(|error| match error {
                    KernelCacheError::Damaged(error) => {
                        Failure::new(exit::USAGE, format!("`{}` is refused: {error}", path.display()))
                    }
                    other => other.into(),
                })?;
                imported.push(cache);
            }
            answer(context, &imported, None)
        }
        Command::Rm { key } => {
            let cache = KernelCache::find(ledger, key)?;
            let listed = [cache.clone()];
            let facts = described(&listed)?;
            cache.remove()?;
            print(context, &listed, &facts, None)
        }
    }
}

fn answer(context: &Context, caches: &[KernelCache], file: Option<&Path>) -> Result<u8, Failure> {
    let facts = described(caches)?;
    print(context, caches, &facts, file)
}

/// Returns the size in bytes and the digest of each kernel cache.
fn described(caches: &[KernelCache]) -> Result<Vec<(u64, String)>, Failure> {
    let mut all = Vec::new();
    for cache in caches {
        all.push(match cache.state()? {
            Some((bytes, digest)) => (bytes, digest.to_string()),
            None => (0, "empty".to_owned()),
        });
    }
    Ok(all)
}

fn print(
    context: &Context,
    caches: &[KernelCache],
    facts: &[(u64, String)],
    file: Option<&Path>,
) -> Result<u8, Failure> {
    let field = |cache: &KernelCache, name: &str| match cache.environment.get(name) {
        Some(Value::List(items)) => items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        Some(other) => other.to_string(),
        None => String::new(),
    };
    context.answer(
        || {
            if caches.is_empty() {
                return "no kernels are stored (a run on a GPU stores them)\n".to_owned();
            }
            let rows = caches.iter().zip(facts).map(|(cache, (size, digest))| {
                let short: String = digest.chars().take(8).collect();
                let file = file.map_or(String::new(), |file| file.display().to_string());
                vec![cache.key.clone(), field(cache, "device"), field(cache, "driver"), bytes(*size), short, file]
            });
            columns(&["KEY", "DEVICE", "DRIVER", ">SIZE", "DIGEST", "FILE"], rows)
        },
        || {
            let items = caches.iter().zip(facts).map(|(cache, (size, digest))| {
                let mut members: Table = table_of([
                    ("key", cache.key.as_str().into()),
                    ("environment", cache.environment.clone().into()),
                    ("bytes", (*size).into()),
                    ("digest", digest.as_str().into()),
                ]);
                if let Some(file) = file {
                    members.insert("file".to_owned(), file.display().to_string().into());
                }
                Value::Table(members)
            });
            table_of([("kernels", Value::List(items.collect()))])
        },
    )?;
    Ok(exit::YES)
}
