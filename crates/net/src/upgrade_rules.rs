//! The options of WebSocket upgrades: how a listener answers, and what is checked before.

use std::io;

use crate::deflate::Deflate;
use crate::transport::Options;
use crate::upgrade::{UpgradeHook, header_error, is_token};

/// How a listener answers requests for an upgrade.
#[derive(Debug, Default)]
pub(crate) struct UpgradeRules {
    /// The supported subprotocols.
    pub(crate) subprotocols: Vec<String>,
    /// Decides about each request. Without it all are accepted.
    pub(crate) hook: Option<UpgradeHook>,
    /// The supported compression.
    pub(crate) deflate: Option<Deflate>,
}

impl UpgradeRules {
    pub(crate) fn new(options: &Options) -> UpgradeRules {
        UpgradeRules {
            subprotocols: options.subprotocols.clone(),
            hook: options.on_upgrade.clone(),
            deflate: deflate(options),
        }
    }
}

/// The compression that these options ask for.
pub(crate) fn deflate(options: &Options) -> Option<Deflate> {
    #[cfg(feature = "deflate")]
    return options.deflate.clone();
    #[cfg(not(feature = "deflate"))]
    {
        let _ = options;
        None
    }
}

/// Checks what the options of a WebSocket have set.
///
/// # Errors
///
/// If a subprotocol, a header or a value of the compression is invalid.
pub(crate) fn check_options(options: &Options) -> io::Result<()> {
    let invalid = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    for (i, name) in options.subprotocols.iter().enumerate() {
        if !is_token(name) {
            return invalid(format!(
                "the subprotocol {name:?} is not a token of HTTP: letters, digits and !#$%&'*+-.^_`|~"
            ));
        }
        if options.subprotocols[..i].contains(name) {
            return invalid(format!("the subprotocol {name:?} is listed twice"));
        }
    }
    #[cfg(feature = "deflate")]
    if let Some(what) = options.deflate.as_ref().and_then(Deflate::error) {
        return invalid(what);
    }
    match options.headers.iter().find_map(|(name, value)| header_error(name, value)) {
        Some(what) => invalid(what),
        None => Ok(()),
    }
}
