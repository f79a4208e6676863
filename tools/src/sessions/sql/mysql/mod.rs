//! Databases on a MySQL or MariaDB server.
//!
//! An episode reads from the original database with an account of its own. With its first write it gets a copy of
//! the database ([`database`]). A lock on the server shows which accounts and copies belong to a running process;
//! those of ended processes are removed ([`ownership`]). Connections pass through a relay that limits the packets of
//! the server ([`connect`]).

mod connect;
mod database;
mod names;
mod ownership;
pub(super) mod server;
mod text_row;

use super::{Databases, MySqlSettings};

pub(super) use connect::{connect, execute};

/// Returns the databases of a server.
pub(super) fn databases(settings: MySqlSettings) -> Result<Box<dyn Databases>, String> {
    Ok(Box::new(server::MySqlServer::new(settings)))
}
