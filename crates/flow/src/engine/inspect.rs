//! Inspection of a WASM file: finds its ABI from its exports and imports, without compiling it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use wasmtime::wasmparser::{
    ComponentExportSectionReader, ComponentImportSectionReader, ComponentTypeRef, CompositeInnerType, Encoding,
    ExportSectionReader, ExternalKind, FuncType, FunctionSectionReader, ImportSectionReader, Parser, Payload, TypeRef,
    TypeSectionReader, ValType,
};

/// The maximum size of a function's file in bytes.
const MAX_FILE: u64 = 256 << 20;

/// The ABI between a function and its host. `docs/flow-abi.md` specifies all three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Abi {
    /// The ABI of wasm-pipeline-throughput: a core module, one call for each message.
    Reference,
    /// A core module, one call for many messages.
    Batched,
    /// A component of the world `estafette:flow/function`.
    Component,
}

impl Abi {
    /// The name in tables and logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Abi::Reference => "reference",
            Abi::Batched => "batched",
            Abi::Component => "component",
        }
    }
}

/// The result of an inspection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inspection {
    /// The ABI that it uses.
    pub(crate) abi: Abi,
    /// Whether it can receive messages. A sender has only a `_start`.
    pub(crate) can_receive: bool,
}

/// Reads a function's file. The text format (`.wat`) is translated to the binary format.
///
/// # Errors
///
/// If the file cannot be read, is too large, or is not WASM.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    let len = fs::metadata(path).with_context(|| format!("cannot read the module {}", path.display()))?.len();
    ensure!(len <= MAX_FILE, "the module {} has {len} bytes; the most is {MAX_FILE}", path.display());
    let bytes = fs::read(path).with_context(|| format!("cannot read the module {}", path.display()))?;
    let wasm = wat::parse_bytes(&bytes).with_context(|| format!("{} is not a WASM file", path.display()))?;
    Ok(wasm.into_owned())
}

/// Finds the ABI of a WASM binary.
///
/// # Errors
///
/// If it is not valid WASM, or its exports and imports fit none of the three ABIs: all reasons, one
/// per line.
pub(crate) fn inspect(wasm: &[u8]) -> Result<Inspection> {
    let surface = Surface::parse(wasm)?;
    if surface.is_component {
        let problems: Vec<_> =
            surface.component_imports.iter().filter_map(|name| component_import_problem(name)).collect();
        ensure!(problems.is_empty(), "{}", problems.join("\n"));
        let can_receive = surface.component_exports.iter().any(|name| name == "handle");
        ensure!(can_receive, "the component exports no `handle`; build it for the world of wit/flow.wit");
        return Ok(Inspection { abi: Abi::Component, can_receive });
    }
    let problems = surface.problems();
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    let abi = if surface.is_batched() { Abi::Batched } else { Abi::Reference };
    let can_receive = surface.exports.contains_key(match abi {
        Abi::Batched => "estafette_batch",
        _ => "on_message",
    });
    let starts = surface.exports.contains_key("_start") || surface.exports.contains_key("_initialize");
    ensure!(
        can_receive || starts,
        "it exports neither a function that receives (`estafette_batch` or `on_message`) nor `_start`; see docs/flow-abi.md"
    );
    Ok(Inspection { abi, can_receive })
}

/// The imports and exports of a file.
#[derive(Default)]
struct Surface {
    is_component: bool,
    component_imports: Vec<String>,
    component_exports: Vec<String>,
    imports: Vec<(String, String, Option<FuncType>)>,
    exports: BTreeMap<String, Option<FuncType>>,
}

/// The functions of the ABIs: name (for imports also the module), parameters and results.
const I32: ValType = ValType::I32;
const EXPORTS: [(&str, &[ValType], &[ValType]); 6] = [
    ("buffer_pointer", &[], &[I32]),
    ("on_message", &[I32, I32], &[]),
    ("estafette_buffer", &[I32], &[I32]),
    ("estafette_batch", &[I32, I32, I32], &[]),
    ("_start", &[], &[]),
    ("_initialize", &[], &[]),
];
const IMPORTS: [(&str, &str, &[ValType], &[ValType]); 5] = [
    ("io", "send_message_to_topic_idx", &[I32, I32, I32], &[]),
    ("io", "send_websocket_message", &[I32, I32], &[]),
    ("estafette", "send", &[I32, I32, I32], &[I32]),
    ("estafette", "send_batch", &[I32, I32], &[I32]),
    ("estafette", "reply", &[I32, I32], &[I32]),
];

impl Surface {
    /// Reads the imports and exports of a file. Of a component, the core modules inside it are not
    /// read.
    fn parse(wasm: &[u8]) -> Result<Surface> {
        let mut surface = Surface::default();
        let mut types = FunctionTypes::default();
        let mut depth = 0usize;
        for payload in Parser::new(0).parse_all(wasm) {
            match payload.context("not a valid WASM file")? {
                Payload::Version { encoding: Encoding::Component, .. } if depth == 0 => {
                    surface.is_component = true;
                    depth = 1;
                }
                Payload::Version { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(section) if depth == 1 => surface.add_component_imports(section)?,
                Payload::ComponentExportSection(section) if depth == 1 => surface.add_component_exports(section)?,
                // The core modules inside a component are not inspected.
                _ if surface.is_component => {}
                Payload::TypeSection(section) => types.add_types(section)?,
                Payload::ImportSection(section) => surface.add_imports(section, &mut types)?,
                Payload::FunctionSection(section) => types.add_functions(section)?,
                Payload::ExportSection(section) => surface.add_exports(section, &types)?,
                _ => {}
            }
        }
        if wasm.len() < 8 {
            bail!("not a valid WASM file");
        }
        Ok(surface)
    }

    fn add_component_imports(&mut self, section: ComponentImportSectionReader<'_>) -> Result<()> {
        for import in section {
            let import = import?;
            // An imported type only names a type of an interface.
            if !matches!(import.ty, ComponentTypeRef::Type(_)) {
                self.component_imports.push(import.name.name.to_owned());
            }
        }
        Ok(())
    }

    fn add_component_exports(&mut self, section: ComponentExportSectionReader<'_>) -> Result<()> {
        for export in section {
            self.component_exports.push(export?.name.name.to_owned());
        }
        Ok(())
    }

    /// Adds the imports of a core module. The imported functions are added to `types`.
    fn add_imports(&mut self, section: ImportSectionReader<'_>, types: &mut FunctionTypes) -> Result<()> {
        for import in section.into_imports() {
            let import = import?;
            let ty = match import.ty {
                TypeRef::Func(index) => {
                    types.functions.push(index);
                    types.at(index)
                }
                _ => None,
            };
            self.imports.push((import.module.to_owned(), import.name.to_owned(), ty));
        }
        Ok(())
    }

    /// Adds the exports of a core module.
    fn add_exports(&mut self, section: ExportSectionReader<'_>, types: &FunctionTypes) -> Result<()> {
        for export in section {
            let export = export?;
            let ty = match export.kind {
                ExternalKind::Func => types.of_function(export.index),
                _ => None,
            };
            self.exports.insert(export.name.to_owned(), ty);
        }
        Ok(())
    }

    fn is_batched(&self) -> bool {
        self.exports.contains_key("estafette_batch") || self.imports.iter().any(|(module, ..)| module == "estafette")
    }

    /// The reasons why a core module cannot run as a function.
    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, params, results) in EXPORTS {
            if let Some(found) = self.exports.get(name) {
                let fits = found.as_ref().is_some_and(|ty| ty.params() == params && ty.results() == results);
                if !fits {
                    problems.push(format!("the export `{name}` is not a function of the type {}", ty(params, results)));
                }
            }
        }
        for (module, name, found) in &self.imports {
            problems.extend(import_problem(module, name, found.as_ref()));
        }
        if !self.exports.contains_key("memory") {
            problems.push("it exports no memory; export its linear memory as `memory`".into());
        }
        for (has, needs) in [("on_message", "buffer_pointer"), ("estafette_batch", "estafette_buffer")] {
            if self.exports.contains_key(has) && !self.exports.contains_key(needs) {
                problems.push(format!("it exports `{has}` but not `{needs}`, where the host puts what it receives"));
            }
        }
        if self.is_batched() && self.exports.contains_key("on_message") {
            problems.push("it mixes two ABIs: `on_message` is the reference's, `estafette` the batched one's".into());
        }
        problems
    }
}

/// The types of a core module's functions.
#[derive(Default)]
struct FunctionTypes {
    /// The module's types by index; `None` for a type that is not a function's.
    types: Vec<Option<FuncType>>,
    /// The index of each function's type. Imported functions come first.
    functions: Vec<u32>,
}

impl FunctionTypes {
    fn add_types(&mut self, section: TypeSectionReader<'_>) -> Result<()> {
        for group in section {
            self.types.extend(group?.into_types().map(|ty| match ty.composite_type.inner {
                CompositeInnerType::Func(ty) => Some(ty),
                _ => None,
            }));
        }
        Ok(())
    }

    fn add_functions(&mut self, section: FunctionSectionReader<'_>) -> Result<()> {
        for index in section {
            self.functions.push(index?);
        }
        Ok(())
    }

    /// Returns the function type with this index.
    fn at(&self, index: u32) -> Option<FuncType> {
        self.types.get(index as usize).cloned().flatten()
    }

    /// Returns the type of the function with this index.
    fn of_function(&self, index: u32) -> Option<FuncType> {
        self.functions.get(index as usize).and_then(|index| self.at(*index))
    }
}

fn import_problem(module: &str, name: &str, found: Option<&FuncType>) -> Option<String> {
    if module == "wasi_snapshot_preview1" {
        return None;
    }
    match IMPORTS.iter().find(|(of, known, ..)| *of == module && *known == name) {
        None => Some(format!(
            "it imports `{module}.{name}`, which no ABI has; the host offers WASI preview 1, `io` and `estafette`"
        )),
        Some((.., params, results)) => {
            let fits = found.is_some_and(|ty| ty.params() == *params && ty.results() == *results);
            (!fits)
                .then(|| format!("the import `{module}.{name}` is not a function of the type {}", ty(params, results)))
        }
    }
}

/// The packages of WASI 0.2 that components may import.
const WASI_PACKAGES: [&str; 6] =
    ["wasi:cli", "wasi:clocks", "wasi:filesystem", "wasi:io", "wasi:random", "wasi:sockets"];

/// Checks the name of an imported interface, such as `wasi:random/random@0.2.0`.
fn component_import_problem(import: &str) -> Option<String> {
    let (path, version) = import.split_once('@').unwrap_or((import, ""));
    let package = path.split('/').next().unwrap_or_default();
    let is_wasi = WASI_PACKAGES.contains(&package);
    if path == "estafette:flow/topics" && version.starts_with("0.1.") || is_wasi && version.starts_with("0.2.") {
        return None;
    }
    let remedy = if is_wasi {
        "build the component for WASI 0.2, such as the target wasm32-wasip2"
    } else {
        "the host offers `estafette:flow/topics@0.1.0` and of WASI 0.2 cli, clocks, filesystem, io, random and sockets"
    };
    Some(format!("it imports `{import}`, which the host does not offer; {remedy}"))
}

/// Prints a function's type: `(i32, i32) -> i32`.
fn ty(params: &[ValType], results: &[ValType]) -> String {
    let list = |types: &[ValType]| types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match results {
        [] => format!("({})", list(params)),
        _ => format!("({}) -> {}", list(params), list(results)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inspected(text: &str) -> Result<Inspection> {
        inspect(&wat::parse_str(text).unwrap())
    }

    #[test]
    fn the_exports_decide_the_abi() {
        let reference = r#"(module (memory (export "memory") 1)
            (func (export "buffer_pointer") (result i32) i32.const 0) (func (export "on_message") (param i32 i32)))"#;
        assert_eq!(inspected(reference).unwrap(), Inspection { abi: Abi::Reference, can_receive: true });
        let batched = r#"(module (memory (export "memory") 1)
            (func (export "estafette_buffer") (param i32) (result i32) i32.const 0)
            (func (export "estafette_batch") (param i32 i32 i32)))"#;
        assert_eq!(inspected(batched).unwrap(), Inspection { abi: Abi::Batched, can_receive: true });
        let sender = r#"(module (import "estafette" "send" (func (param i32 i32 i32) (result i32)))
            (memory (export "memory") 1) (func (export "_start")))"#;
        assert_eq!(inspected(sender).unwrap(), Inspection { abi: Abi::Batched, can_receive: false });
        let component = r#"(component (core module $m (func (export "f"))) (core instance $i (instantiate $m))
            (func $f (canon lift (core func $i "f"))) (export "handle" (func $f)))"#;
        assert_eq!(inspected(component).unwrap(), Inspection { abi: Abi::Component, can_receive: true });
    }

    #[test]
    fn every_problem_is_reported() {
        let text = r#"(module (import "env" "print" (func)) (import "io" "send_websocket_message" (func (param i64)))
            (func (export "on_message") (param i32)))"#;
        let problems = inspected(text).unwrap_err().to_string();
        let lines: Vec<_> = problems.lines().collect();
        assert_eq!(lines.len(), 5, "{problems}");
        for part in ["`on_message` is not a function", "`env.print`", "(i32, i32)", "no memory", "`buffer_pointer`"] {
            assert!(problems.contains(part), "{part}: {problems}");
        }
    }

    #[test]
    fn a_component_imports_only_what_the_host_offers() {
        let importing = |name: &str| {
            inspected(&format!(
                r#"(component (import "{name}" (instance)) (core module $m (func (export "f")))
                (core instance $i (instantiate $m)) (func $f (canon lift (core func $i "f"))) (export "handle" (func $f)))"#
            ))
        };
        for name in ["estafette:flow/topics@0.1.0", "wasi:random/random@0.2.0", "wasi:io/streams@0.2.12"] {
            importing(name).unwrap();
        }
        let naming_a_type = r#"(component (import "estafette:flow/topics@0.1.0" (instance $topics
            (type $outgoing (record (field "topic" u32))) (export "outgoing" (type (eq $outgoing)))))
            (alias export $topics "outgoing" (type $outgoing)) (import "outgoing" (type (eq $outgoing)))
            (core module $m (func (export "f"))) (core instance $i (instantiate $m))
            (func $f (canon lift (core func $i "f"))) (export "handle" (func $f)))"#;
        inspected(naming_a_type).unwrap();
        let refused = [
            ("wasi:random/random@0.3.0", "WASI 0.2, such as"),
            ("wasi:http/types@0.2.0", "the host offers"),
            ("estafette:flow/topics@0.2.0", "the host offers"),
            ("env", "the host offers"),
        ];
        for (name, remedy) in refused {
            let problem = importing(name).unwrap_err().to_string();
            assert!(problem.contains(name) && problem.contains(remedy), "{problem}");
        }
    }

    #[test]
    fn a_file_that_is_not_wasm_is_an_error() {
        for bytes in [&b""[..], b"\0asm", b"\0asm\x01\0\0\0\x01\xff", b"hello, world"] {
            assert!(inspect(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_module_without_entry_points_is_an_error() {
        assert!(inspected(r#"(module (memory (export "memory") 1))"#).unwrap_err().to_string().contains("`_start`"));
    }
}
