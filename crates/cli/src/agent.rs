//! `flowgauge run`, `collect`, `top` and `check`, if the command was built with the agent.

pub(crate) use built::{check, collect, help, run, top};

#[cfg(feature = "agent")]
mod built {
    use std::io::IsTerminal;
    use std::os::unix::process::CommandExt;
    use std::path::Path;
    use std::process::Command;
    use std::{env, io};

    use flowgauge_agent::config::{InterfaceOptions, ReplayOptions, SourceOptions};
    use flowgauge_agent::sandbox::{self, Sandbox};
    use flowgauge_agent::{
        Configuration, Failure as AgentFailure, Origin, SOCKET, collect, feed, log, top,
    };
    use flowgauge_engine::EpochLength;
    use flowgauge_engine::sink::layout::Look;
    use flowgauge_engine::sink::{Sink, Text};
    use flowgauge_kernel::exit_at_once;

    use crate::args::{Agent, Checked, Top};
    use crate::explain;
    use crate::failure::{FINE, Failure, USAGE, complain};
    use crate::output::{self, Last};

    /// The variable with the state folder that systemd gives a service; relative paths start there.
    const STATE: &str = "STATE_DIRECTORY";

    /// The default length of an epoch.
    const EPOCH: EpochLength = EpochLength::Time(1_000_000_000);

    /// Most rows of each list that USR1 prints.
    const ROWS: usize = 100;

    /// Runs an agent until a signal ends it, and then ends the process. Returns only the exit code
    /// of an agent that did not start.
    pub(crate) fn run(Agent { config, set, no_sandbox }: &Agent) -> Result<u8, Failure> {
        let origin = origin(config, set)?;
        if collect::is_collector(&origin.path) {
            return Err(Failure::Usage(format!(
                "{} is the file of a collector; use 'flowgauge collect'",
                config.display()
            )));
        }
        let entered = origin.read().and_then(|configuration| {
            log::start(configuration.agent.log);
            flowgauge_agent::reserve(&configuration);
            (!no_sandbox).then(|| enter(&origin, &configuration)).transpose()
        });
        let sandbox = match entered {
            Ok(sandbox) => sandbox,
            Err(error) => return Ok(ended(Err(error))),
        };
        let last = last()?;
        let sinks = || vec![Box::new(last.clone()) as Box<dyn Sink>];
        let code = ended(flowgauge_agent::run(&origin, &sinks, sandbox.as_ref()));
        // A Kafka client that was still busy at the deadline may be inside OpenSSL.
        exit_at_once(code)
    }

    /// The last reports, which USR1 prints.
    fn last() -> Result<Last, Failure> {
        let last = Last::default();
        last.print_on_request(Text { rows: ROWS, look: Look::default() })?;
        Ok(last)
    }

    /// Runs a collector until a signal ends it, and then ends the process, as an agent does.
    #[cfg(feature = "kafka")]
    pub(crate) fn collect(Agent { config, set, no_sandbox }: &Agent) -> Result<u8, Failure> {
        let origin = origin(config, set)?;
        let entered = collect::Configuration::read(&origin).and_then(|configuration| {
            log::start(configuration.collect.log);
            let enter = || Sandbox::enter_collector(&configuration, &origin.path);
            (!no_sandbox).then(enter).transpose()
        });
        let sandbox = match entered {
            Ok(sandbox) => sandbox,
            Err(error) => return Ok(ended(Err(error))),
        };
        let last = last()?;
        let sinks = || vec![Box::new(last.clone()) as Box<dyn Sink>];
        exit_at_once(ended(collect::run(&origin, &sinks, sandbox.as_ref())))
    }

    #[cfg(not(feature = "kafka"))]
    pub(crate) fn collect(_: &Agent) -> Result<u8, Failure> {
        let message = "this flowgauge was built without Kafka; build it with 'make agent'";
        Err(Failure::Usage(message.to_owned()))
    }

    /// Enters the sandbox of an agent, and leaves a helper outside.
    fn enter(origin: &Origin, configuration: &Configuration) -> Result<Sandbox, AgentFailure> {
        let mut helper = Command::new("/proc/self/exe");
        helper.arg0("flowgauge").arg("sandbox-helper").arg("-C").arg(&origin.path);
        helper.args(origin.sets.iter().flat_map(|set| ["--set", set]));
        Sandbox::enter(configuration, &origin.path, helper)
    }

    /// Serves a sandboxed agent until the agent ends.
    pub(crate) fn help(Agent { config, set, .. }: &Agent) -> Result<u8, Failure> {
        Ok(ended(sandbox::help(&origin(config, set)?)))
    }

    /// Prints what an agent or a collector would run.
    pub(crate) fn check(Checked { config, set }: &Checked) -> Result<u8, Failure> {
        let origin = origin(config, set)?;
        if collect::is_collector(&origin.path) {
            return match collect::Configuration::read(&origin) {
                Ok(configuration) => output::write(None, &configuration.to_string()).map(|()| FINE),
                Err(error) => Ok(ended(Err(error))),
            };
        }
        let checked = origin.read().and_then(|configuration| {
            let plan = configuration.plan()?;
            Ok((configuration, plan))
        });
        match checked {
            Ok((configuration, plan)) => {
                output::write(None, &explain::several(&configuration.measurements, &plan))
                    .map(|()| FINE)
            }
            Err(error) => Ok(ended(Err(error))),
        }
    }

    /// Shows reports until the user quits.
    pub(crate) fn top(top: &Top) -> Result<(), Failure> {
        let failed =
            |error: io::Error| Failure::Failed(format!("cannot use the terminal: {error}"));
        if !io::stdout().is_terminal() {
            return Err(Failure::Usage("top needs a terminal; use live elsewhere".to_owned()));
        }
        if let Some(data) = &top.data {
            let name = data.display().to_string();
            let reports = feed::attach(&data.join(SOCKET)).map_err(|error| {
                Failure::Failed(format!(
                    "no agent answers in {name} ({error}); start one, or use -i or -r"
                ))
            })?;
            return top::show(name, &reports).map_err(failed);
        }
        let (name, source) = match (&top.interface, &top.read) {
            (Some(interface), _) => {
                (interface.clone(), SourceOptions::Interface(InterfaceOptions::new(interface)))
            }
            (None, read) => {
                let replay = read.clone().unwrap_or_default();
                let name = replay.display().to_string();
                (name, SourceOptions::Replay(ReplayOptions { replay, times: None }))
            }
        };
        let config = top.measurement.config(&name, EPOCH).map_err(Failure::Usage)?;
        let config = flowgauge_engine::capable(&config).map_or(config, |(instead, _)| instead);
        let reports = top::measure(source, config);
        let reports = reports.map_err(|error| match error.code() {
            USAGE => Failure::Usage(error.to_string()),
            _ => Failure::Failed(error.to_string()),
        })?;
        top::show(name, &reports).map_err(failed)
    }

    /// The agent's file. Its path is relative to the working directory of the call.
    fn origin(config: &Path, set: &[String]) -> Result<Origin, Failure> {
        let path = std::path::absolute(config).map_err(|error| {
            Failure::Failed(format!("cannot read {}: {error}", config.display()))
        })?;
        if let Some(state) = env::var_os(STATE) {
            env::set_current_dir(&state).map_err(|error| {
                let name = Path::new(&state).display();
                Failure::Failed(format!("cannot enter the folder {name} of {STATE}: {error}"))
            })?;
        }
        Ok(Origin { path, sets: set.to_owned() })
    }

    /// The exit code of an agent.
    fn ended(result: Result<(), AgentFailure>) -> u8 {
        result.map_or_else(
            |error| {
                complain(&error.to_string());
                error.code()
            },
            |()| FINE,
        )
    }
}

#[cfg(not(feature = "agent"))]
mod built {
    use crate::args::{Agent, Checked, Top};
    use crate::failure::Failure;

    pub(crate) fn run(_: &Agent) -> Result<u8, Failure> {
        Err(absent())
    }

    pub(crate) fn collect(_: &Agent) -> Result<u8, Failure> {
        Err(absent())
    }

    pub(crate) fn help(_: &Agent) -> Result<u8, Failure> {
        Err(absent())
    }

    pub(crate) fn check(_: &Checked) -> Result<u8, Failure> {
        Err(absent())
    }

    pub(crate) fn top(_: &Top) -> Result<(), Failure> {
        Err(absent())
    }

    fn absent() -> Failure {
        let message = "this flowgauge was built without the agent; build it with 'make agent'";
        Failure::Usage(message.to_owned())
    }
}
