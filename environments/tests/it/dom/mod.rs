//! Pages as text, beside what the original makes of them.

mod golden;
mod hostile;
