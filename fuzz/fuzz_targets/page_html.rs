//! Parses pages of Wikipedia.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lumos_tasks::Behaviour;
use lumos_tasks::families::qa::page;

fuzz_target!(|html: &str| {
    for behaviour in Behaviour::ALL {
        let read = page::read(html, behaviour);
        let _ = read.observation(page::MOST_SENTENCES);
    }
    let _ = page::clean(html);
});
