//! What packages ship beside the program, made by the program itself from its one table of flags.

use std::fs;

use crate::{Outcome, call, cargo, root};

const SHELLS: [&str; 5] = ["bash", "elvish", "fish", "powershell", "zsh"];

const PROGRAM: [&str; 6] = ["run", "--quiet", "--locked", "--package", "xdfs-cli", "--"];

/// Writes a completion script for each shell.
pub(crate) fn completions() -> Outcome {
    let folder = root().join("target/dist/completions");
    fs::create_dir_all(&folder).map_err(|e| format!("can't make {}: {e}", folder.display()))?;
    for shell in SHELLS {
        let path = folder.join(format!("xdfs.{shell}"));
        let file = fs::File::create(&path);
        let file = file.map_err(|e| format!("can't write {}: {e}", path.display()))?;
        call(
            cargo()
                .args(PROGRAM)
                .args(["completions", shell])
                .stdout(file),
        )?;
    }
    Ok(())
}

/// Writes the manual pages.
pub(crate) fn man() -> Outcome {
    let folder = root().join("target/dist/man");
    fs::create_dir_all(&folder).map_err(|e| format!("can't make {}: {e}", folder.display()))?;
    call(cargo().args(PROGRAM).arg("man").arg(&folder))
}
