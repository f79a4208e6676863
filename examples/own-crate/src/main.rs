//! lumos with a benchmark, a tool and a backend of models of its own:
//!
//! ```sh
//! cargo run -- run --tasks stamps --model builtin:tiny
//! ```

mod abacus;
mod benchmark;
mod says;

use std::process::ExitCode;

use lumos_eval::Program;

#[global_allocator]
static ALLOCATOR: lumos_eval::Allocator = lumos_eval::Allocator;

fn main() -> ExitCode {
    Program::new().benchmark(benchmark::stamps()).tool(&abacus::INTEGERS).model(&says::SAYS).run()
}
