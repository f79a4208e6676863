//! Integration tests of the environments.

mod sql;

mod dom {
    //! Compares pages as text with those of the original.

    mod golden;
    mod hostile;
}

mod maths {
    //! Tests of the exact mathematics through its public interface.

    mod comparison;
    mod limits;
    mod properties;
    mod recorded;
    mod table;
}
