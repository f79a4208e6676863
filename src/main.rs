//! The program `lumos`: the command line without additions.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: lumos_eval::Allocator = lumos_eval::Allocator;

fn main() -> ExitCode {
    lumos_eval::Program::new().run()
}
