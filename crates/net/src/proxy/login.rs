//! The user and password of a proxy.

/// A user and a password, which are never printed.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) user: Box<str>,
    pub(super) password: Box<str>,
}
