//! The code and reason of a WebSocket close: RFC 6455, section 7.4.

/// The code and reason that a closing frame carries.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "the RFC's frame has these two fields, and callers set both")]
pub struct Close {
    /// 1000 for a normal close; `None` for an empty frame. To be sent: 1000 to 1003, 1007 to 1014,
    /// or 3000 to 4999.
    pub code: Option<u16>,
    /// A text for humans, at most 123 bytes.
    pub reason: String,
}

/// Why a closing frame cannot carry a [`Close`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// RFC 6455 or its registry do not allow this code in a frame.
    #[error(
        "a closing frame cannot carry the code {0}: use 1000 for a normal close, 1001 to 1003 or 1007 to 1014 as their \
         registry defines them, or 3000 to 4999 for codes of libraries and applications"
    )]
    Code(u16),
    /// A frame without a code has no reason.
    #[error("a closing frame without a code cannot carry a reason: set Close::code, for example to 1000")]
    ReasonWithoutCode,
}

impl Close {
    /// Checks whether a frame can carry it.
    pub(crate) fn check(&self) -> Result<(), CloseError> {
        match self.code {
            Some(code) if !may_be_sent(code) => Err(CloseError::Code(code)),
            None if !self.reason.is_empty() => Err(CloseError::ReasonWithoutCode),
            _ => Ok(()),
        }
    }

    /// The payload of a closing frame. A reason that is too long is truncated at a character
    /// boundary.
    pub(crate) fn payload(&self) -> Vec<u8> {
        let Some(code) = self.code else { return Vec::new() };
        let mut payload = code.to_be_bytes().to_vec();
        payload.extend_from_slice(&self.reason.as_bytes()[..self.reason.floor_char_boundary(123)]);
        payload
    }

    /// Parses the payload of a closing frame.
    pub(super) fn parse(payload: &[u8]) -> Result<Close, Bad> {
        let Some((code, reason)) = payload.split_first_chunk::<2>() else {
            let none = Close { code: None, reason: String::new() };
            return if payload.is_empty() { Ok(none) } else { Err(Bad::Code) };
        };
        let code = u16::from_be_bytes(*code);
        if !may_be_sent(code) {
            return Err(Bad::Code);
        }
        let reason = std::str::from_utf8(reason).map_err(|_| Bad::Reason)?.to_owned();
        Ok(Close { code: Some(code), reason })
    }
}

/// What is invalid in a closing frame.
pub(super) enum Bad {
    Code,
    Reason,
}

/// Whether a frame may carry the code: those that the RFC or its registry defines for frames, and
/// those for libraries and applications.
fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}
