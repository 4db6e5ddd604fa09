//! A local page over the ledger: an HTTP server on the loopback interface or a Unix socket.
//!
//! It answers nothing by itself. Each question of the page is a reading command of this program, started anew with `--json`, so that the page and
//! the terminal cannot disagree, and the ledger is open only while a question is answered. Must not write, and must not serve a file of the disk.

mod api;
mod door;
mod kept;
mod live;
mod page;
mod server;

pub use door::Key;
pub use server::{Options, Place, serve};
