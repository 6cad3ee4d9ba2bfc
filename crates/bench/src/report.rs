//! What is told of a run: a table, a file to keep, a page with plots. Two or more runs are compared the same way.

mod axis;
mod file;
pub(crate) mod page;
mod plot;
mod plots;
pub(crate) mod table;
mod timeline;

pub(crate) use file::{RunFile, ServerCard};

use crate::error::BenchError;
use crate::options::ReportOptions;

/// `baton bench report`
pub(crate) fn report(options: &ReportOptions) -> Result<(), BenchError> {
    let runs = options.files.iter().map(|path| RunFile::load(path)).collect::<Result<Vec<_>, _>>()?;
    print!("{}", table::text(&runs));
    match &options.html {
        Some(path) => page::save(path, &runs),
        None => Ok(()),
    }
}
