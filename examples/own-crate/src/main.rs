//! lumos with a benchmark and a tool of its own:
//!
//! ```sh
//! cargo run -- run --tasks stamps --model builtin:tiny
//! ```

mod abacus;
mod benchmark;

use std::process::ExitCode;

use lumos_eval::Program;

#[global_allocator]
static ALLOCATOR: lumos_eval::Allocator = lumos_eval::Allocator;

fn main() -> ExitCode {
    Program::new().benchmark(benchmark::stamps()).tool(&abacus::INTEGERS).run()
}
