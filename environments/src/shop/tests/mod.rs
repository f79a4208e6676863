//! Compares the shop with the original's recorded behaviour, if `LUMOS_SHARED` names a folder that contains
//! it.

mod episodes;
mod goals;
mod people;
mod rankings;
mod rewards;
mod support;
