//! The reference page of all commands and options, generated from the parser's definitions.

use super::Cli;
use clap::{Arg, ArgAction, Command, CommandFactory};
use std::fs;
use std::path::Path;

/// Returns the page, which is stored as `docs/options.md`.
fn page() -> String {
    let mut program = Cli::command();
    program.build();
    let mut page = String::from(
        "# Every option\n\nThe text of `ledger help COMMAND`, made from the program by a test. [Commands](commands.md) lists the commands by task.\n",
    );
    add(&mut page, &program, "ledger", true);
    page
}

/// Appends a command and its subcommands. The first one also lists the options that all commands share.
fn add(page: &mut String, command: &Command, name: &str, is_first: bool) {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    page.push_str(&format!("\n## `{name}`\n\n{about}\n"));
    let long = command.get_long_about().map(ToString::to_string).unwrap_or_default();
    let details = long.strip_prefix(&about).unwrap_or(&long).trim_start_matches('.');
    for paragraph in details.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty()) {
        match paragraph.strip_prefix("Example: ") {
            Some(example) => {
                page.push_str(&format!("\n    {}\n", example.split_whitespace().collect::<Vec<_>>().join(" ")))
            }
            None => page.push_str(&format!("\n{paragraph}\n")),
        }
    }
    let is_shown = |argument: &&Arg| {
        let is_own = is_first || !argument.is_global_set();
        is_own && !argument.is_hide_set() && !["help", "version"].contains(&argument.get_id().as_str())
    };
    let rows: Vec<_> = command.get_arguments().filter(is_shown).map(row).collect();
    if !rows.is_empty() {
        page.push_str(&format!("\n| argument | meaning |\n|---|---|\n{}\n", rows.join("\n")));
    }
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
        add(page, below, &format!("{name} {}", below.get_name()), false);
    }
}

/// Returns the row of an option or a positional argument.
fn row(argument: &Arg) -> String {
    let values: Vec<_> = argument.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
    let is_flag = !matches!(argument.get_action(), ArgAction::Set | ArgAction::Append);
    let value = if is_flag { String::new() } else { values.join(" ") };
    let name = match argument.get_long() {
        Some(long) => format!("--{long} {value}"),
        None => value,
    };
    let short = argument.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
    let help = argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut meaning = help.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
    let possible: Vec<_> =
        argument.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    if !is_flag && !possible.is_empty() {
        meaning.push_str(&format!(". One of {}", possible.join(", ")));
    }
    let defaults: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !is_flag && !defaults.is_empty() {
        meaning.push_str(&format!(" [default: {}]", defaults.join(",")));
    }
    format!("| {short}`{}` | {meaning} |", name.trim().replace('|', "\\|"))
}

#[test]
fn the_page_of_options_matches_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/options.md");
    let made = page();
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        fs::write(&path, &made).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    let differs = made.lines().zip(found.lines()).find(|(made, found)| made != found);
    assert!(
        made == found,
        "docs/options.md is not the help of the program (INSTA_UPDATE=always cargo test the_page_of_options); first difference: {differs:?}"
    );
}
