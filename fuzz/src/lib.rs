//! Shared code of the fuzz targets.

use std::panic;

/// Allows panics in dependencies, which lumos catches and returns as errors. Without this, a target aborts on every
/// panic, caught or not. Panics in lumos still abort it.
pub fn allow_caught_panics_of_dependencies() {
    let abort = panic::take_hook();
    panic::set_hook(Box::new(move |report| {
        let of_dependency = |file: &str| file.contains("/registry/src/") || file.contains("/library/");
        if !report.location().is_some_and(|location| of_dependency(location.file())) {
            abort(report);
        }
    }));
}
