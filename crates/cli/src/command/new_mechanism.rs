//! The command `new-mechanism`: writes a crate that measures a channel of its own. The files are in
//! `templates/mechanism`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use estafette_measure::Registry;

use crate::args::NewMechanism;
use crate::exit::Exit;
use crate::terminal::print;

/// The files of the template: paths in the crate's folder, and contents. In paths and contents,
/// `my-mechanism` and `my_mechanism` stand for the name.
const TEMPLATE: [(&str, &str); 8] = [
    ("Cargo.toml", include_str!("../../templates/mechanism/Cargo.toml.txt")),
    ("README.md", include_str!("../../templates/mechanism/README.md")),
    (".gitignore", include_str!("../../templates/mechanism/gitignore.txt")),
    ("src/lib.rs", include_str!("../../templates/mechanism/lib.rs")),
    ("src/channel.rs", include_str!("../../templates/mechanism/channel.rs")),
    ("src/mechanism.rs", include_str!("../../templates/mechanism/mechanism.rs")),
    ("src/main.rs", include_str!("../../templates/mechanism/main.rs")),
    ("benches/channels.rs", include_str!("../../templates/mechanism/bench.rs")),
];

/// The crates that the template depends on: name, folder in `crates`, and more of the dependency.
const CRATES: [(&str, &str, &str); 3] = [
    ("estafette-cli", "cli", ", default-features = false"),
    ("estafette-contest-channels", "contest-channels", ", default-features = false, features = [\"channels\"]"),
    ("estafette-measure", "measure", ""),
];

/// The most characters of a name, as registries allow them.
const LONGEST: usize = 64;

/// Names that cargo or the template uses, and the keywords of Rust.
const RESERVED: &str = "\
    alloc anyhow bin build channels core deps examples incremental main proc-macro proc_macro std target test \
    abstract as async await become box break const continue crate do dyn else enum extern false final fn for gen if \
    impl in let loop macro match mod move mut override priv pub ref return self static struct super trait true try \
    type typeof unsafe unsized use virtual where while yield";

/// Runs `new-mechanism`.
pub(crate) fn run(registry: &Registry, args: &NewMechanism) -> Result<Exit> {
    check_name(registry, &args.name)?;
    let checkout = args.path.as_deref().map(Checkout::find).transpose()?;
    let folder = Path::new(&args.name);
    check_empty(folder)?;
    let mut files: Vec<(PathBuf, String)> = Vec::new();
    for (path, text) in TEMPLATE {
        let text = named(text, &args.name).replace("ESTAFETTE", &dependencies(checkout.as_ref()));
        files.push((PathBuf::from(path), text));
    }
    if let Some(lock) = checkout.as_ref().and_then(|checkout| checkout.lock.clone()) {
        files.push((PathBuf::from("Cargo.lock"), lock));
    }
    write(folder, &files)?;
    print(&next_steps(&args.name, &files, checkout.is_some()))?;
    Ok(Exit::Fine)
}

/// Checks that the name can be that of a crate and of a mechanism.
fn check_name(registry: &Registry, name: &str) -> Result<()> {
    let remedy = "choose a name such as my-channel";
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    ensure!(
        name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(is_plain),
        "`{name}` is not a name for a crate: it begins with a lower-case letter and has lower-case letters, digits, \
         `-` and `_` only; {remedy}"
    );
    ensure!(name.len() <= LONGEST, "a name has at most {LONGEST} characters; {remedy}");
    ensure!(
        !RESERVED.split(' ').any(|reserved| name == reserved),
        "`{name}` is a name that Rust or cargo uses; {remedy}"
    );
    ensure!(!name.starts_with("estafette"), "names that begin with `estafette` are those of its crates; {remedy}");
    let mechanism = format!("thread/{name}");
    ensure!(registry.get(&mechanism).is_none(), "`{mechanism}` is already a mechanism; {remedy}");
    Ok(())
}

/// A checkout of Estafette.
struct Checkout {
    /// Its folder, as a TOML string without the quotes.
    folder: String,
    lock: Option<String>,
}

impl Checkout {
    fn find(folder: &Path) -> Result<Checkout> {
        let remedy = || format!("--path {}: name the folder of a checkout of Estafette", folder.display());
        let absolute = folder.canonicalize().with_context(remedy)?;
        for (name, path, _) in CRATES {
            let manifest = absolute.join("crates").join(path).join("Cargo.toml");
            let text = fs::read_to_string(&manifest).with_context(remedy)?;
            ensure!(text.contains(&format!("name = \"{name}\"")), "{}: not the crate {name} there", remedy());
        }
        let Some(path) = absolute.to_str() else { bail!("{}, whose path is Unicode text", remedy()) };
        let lock = match fs::read_to_string(absolute.join("Cargo.lock")) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            lock => Some(lock.with_context(remedy)?),
        };
        Ok(Checkout { folder: toml_escaped(path), lock })
    }
}

/// Escapes the text of a TOML string.
fn toml_escaped(text: &str) -> String {
    let escaped = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04X}", u32::from(c)),
        c => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// The lines of `[dependencies]`.
fn dependencies(checkout: Option<&Checkout>) -> String {
    let lines = CRATES.map(|(name, folder, more)| {
        let source = match checkout {
            Some(checkout) => format!("path = \"{}/crates/{folder}\"", checkout.folder),
            None => format!("version = \"{}\"", env!("CARGO_PKG_VERSION")),
        };
        format!("{name} = {{ {source}{more} }}")
    });
    lines.join("\n")
}

fn named(text: &str, name: &str) -> String {
    text.replace("my-mechanism", name).replace("my_mechanism", &name.replace('-', "_"))
}

fn check_empty(folder: &Path) -> Result<()> {
    match fs::symlink_metadata(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot use {} as a folder", folder.display())),
        Ok(found) if found.is_dir() => {}
        Ok(_) => bail!("{} exists and is no folder: choose another name, or remove it", folder.display()),
    }
    let mut entries = fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
    ensure!(
        entries.next().is_none(),
        "the folder {} is not empty: choose another name, or another folder to work in",
        folder.display()
    );
    Ok(())
}

/// Writes the files into a new folder beside `folder`, which then gets its name. So the whole crate
/// is there, or nothing.
fn write(folder: &Path, files: &[(PathBuf, String)]) -> Result<()> {
    let beside = PathBuf::from(format!(".{}.{}", folder.display(), std::process::id()));
    let all = || {
        for (path, text) in files {
            let path = beside.join(path);
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            fs::write(path, text)?;
        }
        // An empty folder of that name is replaced.
        fs::rename(&beside, folder)
    };
    let written = fs::create_dir(&beside).and_then(|()| all());
    written.map_err(|error| {
        let _ = fs::remove_dir_all(&beside);
        let folder = folder.display();
        anyhow::Error::new(error).context(format!("cannot write the folder {folder} here: work in another folder"))
    })
}

/// What was written, and the commands to go on with.
fn next_steps(name: &str, files: &[(PathBuf, String)], has_checkout: bool) -> String {
    let mut text = String::new();
    for (path, _) in files {
        text.push_str(&format!("wrote {name}/{}\n", path.display()));
    }
    if !has_checkout {
        text.push_str(&format!(
            "\nIt depends on version {} of the crates of Estafette. If your registry does not have them, write it\n\
             again with --path and the folder of a checkout.\n",
            env!("CARGO_PKG_VERSION")
        ));
    }
    text.push_str(&format!(
        "\nMeasure thread/{name} beside the built-in channels between threads:\n    cd {name}\n    cargo bench\n"
    ));
    text
}
