//! The command `flow new`: writes an example pipeline.

use anyhow::{Result, anyhow};
use estafette_flow::config::scaffold;

use crate::args::FlowNew;
use crate::exit::Exit;
use crate::terminal::print;

/// Runs `flow new`.
pub(crate) fn run(args: &FlowNew) -> Result<Exit> {
    let files = scaffold(&args.folder, args.language).map_err(|error| anyhow!(error))?;
    let mut text = String::new();
    for file in &files {
        text.push_str(&format!("wrote {}\n", file.display()));
    }
    if let Some(command) = args.language.build_command() {
        let folder = args.folder.display();
        text.push_str(&format!("\nBuild the function in the folder {folder}:\n    {command}\n"));
    }
    let pipeline = args.folder.join("pipeline.yml");
    text.push_str(&format!("\nRun it:\n    estafette flow run {}\n", pipeline.display()));
    print(&text)?;
    Ok(Exit::Fine)
}
