//! The vocabulary of lumos and the agent's logic, without I/O.
