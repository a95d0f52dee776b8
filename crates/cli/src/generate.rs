//! `flowgauge generate`: a synthetic capture with its exact counts.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use flowgauge_synthetic::{Config, PcapWriter, Profile, Traffic, Truth};

use crate::args::Generation;
use crate::failure::Failure;
use crate::output;
use crate::values::ProfileName;

/// Runs the command.
pub(crate) fn run(generation: &Generation) -> Result<(), Failure> {
    let traffic = Traffic::new(config(generation)?).map_err(|e| Failure::Usage(e.to_string()))?;
    let named = |path: &Path| path != Path::new("-");
    let target = generation.output.as_deref().filter(|path| named(path));
    if target.is_none() && io::stdout().is_terminal() {
        let message = "refusing to write a binary capture to a terminal; name a file with -o";
        return Err(Failure::Usage(message.to_owned()));
    }
    let together = |truth: &Path| match target {
        Some(target) => output::same(target, truth),
        None => !named(truth),
    };
    if generation.truth.as_deref().is_some_and(together) {
        return Err(Failure::Usage("capture and truth need different files; name each".to_owned()));
    }
    let out = output::open(target)?;
    let truth_out = generation.truth.as_deref().map(|path| output::open(Some(path)));
    let truth_out = truth_out.transpose()?;
    let mut truth = truth_out.is_some().then(|| Truth::new(&traffic));
    write(traffic, truth.as_mut(), out).map_err(|e| Failure::output("the capture", &e))?;
    if let (Some(truth), Some(out)) = (truth, truth_out) {
        truth.write_json(out).map_err(|e| Failure::output("the truth", &e))?;
    }
    Ok(())
}

/// The traffic that the options describe.
fn config(generation: &Generation) -> Result<Config, Failure> {
    let profile = match generation.profile {
        ProfileName::Zipf => Profile::Zipf {
            flows: generation.flows.unwrap_or(100_000),
            skew: generation.skew.unwrap_or(1.0),
        },
        ProfileName::Backbone if generation.skew.is_some() => {
            return Err(Failure::Usage("--skew needs --profile zipf".to_owned()));
        }
        ProfileName::Backbone => Profile::Backbone { flows: generation.flows },
    };
    Ok(Config {
        profile,
        packets: generation.packets,
        size: generation.size,
        ipv6: generation.ipv6,
        rate: generation.rate,
        seed: generation.seed,
        plants: generation.plant.clone(),
        ..Config::default()
    })
}

fn write(traffic: Traffic, mut truth: Option<&mut Truth>, out: impl Write) -> io::Result<()> {
    let mut capture = PcapWriter::new(out);
    for packet in traffic {
        if let Some(truth) = &mut truth {
            truth.record(&packet);
        }
        capture.write(&packet)?;
    }
    capture.finish().map(drop)
}
