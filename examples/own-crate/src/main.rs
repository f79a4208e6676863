//! lumos with benchmarks, tools, a family and a backend of models of its own:
//!
//! ```sh
//! cargo run -- run --tasks stamps --model builtin:tiny
//! ```

mod abacus;
mod album;
mod benchmark;
mod says;

use std::process::ExitCode;

use lumos_eval::Program;

#[global_allocator]
static ALLOCATOR: lumos_eval::Allocator = lumos_eval::Allocator;

fn main() -> ExitCode {
    Program::new()
        .benchmark(benchmark::stamps())
        .tool(&abacus::INTEGERS)
        .benchmark(album::albums())
        .tool(&album::PAGES)
        .model(&says::SAYS)
        .run()
}
