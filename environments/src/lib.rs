//! Pure worlds and their rewards: exact maths.
