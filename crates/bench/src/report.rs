//! The report of a run: a table, a file to keep, a page with plots. Two or more runs are compared the same way.

mod axis;
mod document;
mod file;
pub(crate) mod page;
mod plot;
mod plots;
pub(crate) mod table;
mod timeline;

pub use axis::Axis;
pub use document::document;
pub(crate) use file::{RunFile, ServerCard};
pub use page::verdict;
pub use plot::{Plot, PlotLine, PlotMark, Style, escape, legend};

use std::path::PathBuf;

use crate::error::BenchError;
use crate::options::ReportOptions;

/// `baton bench report`
pub(crate) fn report(options: &ReportOptions) -> Result<(), BenchError> {
    let mut runs = options.files.iter().map(|path| RunFile::load(path)).collect::<Result<Vec<_>, _>>()?;
    label_distinctly(&mut runs, &options.files);
    print!("{}", table::text(&runs));
    match &options.html {
        Some(path) => page::save(path, &runs),
        None => Ok(()),
    }
}

/// Runs of one server that have no label all have its name: then the names of their files are better ones.
fn label_distinctly(runs: &mut [RunFile], files: &[PathBuf]) {
    let labels: Vec<_> = runs.iter().map(|run| run.label.clone()).collect();
    for (run, file) in runs.iter_mut().zip(files) {
        if labels.iter().filter(|label| **label == run.label).count() > 1 {
            run.label = file.file_stem().unwrap_or(file.as_os_str()).to_string_lossy().into_owned();
        }
    }
}
