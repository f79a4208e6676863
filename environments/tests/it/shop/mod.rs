//! The shop beside the original's recorded behaviour, where a folder with it is named by `LUMOS_SHARED`.

mod episodes;
mod goals;
mod people;
mod rankings;
mod rewards;
mod support;
