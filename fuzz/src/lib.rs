//! What several fuzz targets share.

use std::panic;

/// Lets the panics of dependencies pass, which lumos catches and returns as errors. By itself a target ends at every
/// panic, caught or not; at those of lumos it still does.
pub fn allow_caught_panics_of_dependencies() {
    let abort = panic::take_hook();
    panic::set_hook(Box::new(move |report| {
        let of_dependency = |file: &str| file.contains("/registry/src/") || file.contains("/library/");
        if !report.location().is_some_and(|location| of_dependency(location.file())) {
            abort(report);
        }
    }));
}
