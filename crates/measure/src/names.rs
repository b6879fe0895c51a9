//! Enums whose variants have names: on the command line, in tables, and in the texts of errors.

/// Gives an enum a list of its variants, and their names as `Display` and `FromStr`. `$what` says
/// what a variant is.
macro_rules! names {
    ($type:ident, $what:literal, $($variant:ident = $name:literal),+ $(,)?) => {
        impl $type {
            #[doc = concat!("Every ", $what, ".")]
            pub const ALL: [$type; [$($name),+].len()] = [$($type::$variant),+];
        }
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(match self { $(Self::$variant => $name),+ })
            }
        }
        impl std::str::FromStr for $type {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($name => Ok(Self::$variant),)+
                    _ => Err(format!("unknown {} `{text}`; known: {}", $what, [$($name),+].join(", "))),
                }
            }
        }
    };
}
pub(crate) use names;
