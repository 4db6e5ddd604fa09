use super::*;

const SMALL: &str = "model.name = 'softmax'\ntraining = { learning_rate = 0.1, epochs = 1 }\n";

/// Returns the values of some fields in every cell, `-` for a missing one.
fn values(manifest: &Manifest, fields: &[&str]) -> Vec<String> {
    let row = |cell: &Cell| {
        let value = |field: &&str| match *field {
            "seed" => cell.seed.to_string(),
            field => cell.get(field).map_or_else(|| "-".to_owned(), ToString::to_string),
        };
        fields.iter().map(value).collect::<Vec<_>>().join(" ")
    };
    manifest.cells.iter().map(row).collect()
}

fn listing(cell: &Cell) -> String {
    let lines = |table: &Table| table.iter().map(|(key, value)| format!("{key} = {value}\n")).collect::<String>();
    format!("{}-- settings\n{}-- seed {}", lines(&cell.config), lines(&cell.settings), cell.seed)
}

#[test]
fn every_default_is_written_out() {
    let manifest = parse(SMALL, "some/where/first.toml").unwrap();
    assert_eq!((manifest.cells.len(), manifest.repeats, manifest.axes.len()), (1, 1, 0));
    assert_eq!(manifest.directory, Path::new("some/where"));
    insta::assert_snapshot!(listing(&manifest.cells[0]), @r"
    data.eval_count = 2000
    data.generator_version = 1
    data.name = digits
    data.seed = 0
    data.train_count = 10000
    hardware.device = auto
    hardware.parallelism = none
    model.name = softmax
    training.batch_size = 64
    training.epochs = 1
    training.learning_rate = 0.1
    training.optimizer = sgd
    training.precision = fp32
    training.schedule = constant
    -- settings
    container.image = host
    experiment.name = first
    telemetry.hz = 10
    telemetry.idle_s = 2.0
    -- seed 1
    ");
}

#[test]
fn gpus_share_a_batch_or_have_one_each() {
    let fields = [
        "hardware.gpus",
        "hardware.parallelism",
        "training.batch_size",
        "training.batch_global",
        "training.learning_rate_scaling",
    ];
    let rows = |training: &str| {
        let text = format!(
            "[model]\nname = 'softmax'\n[training]\nlearning_rate = 1\nsteps = 1\n{training}\n[hardware]\ngpus = [1, 2, 4]\nparallelism = 'data'"
        );
        values(&read(&text), &fields)
    };
    assert_eq!(rows("batch_size = 32"), ["1 none 32 - -", "2 data 32 64 none", "4 data 32 128 none"], "weak scaling");
    assert_eq!(
        rows("batch_global = 32\nlearning_rate_scaling = 'linear'"),
        ["1 none 32 - -", "2 data 16 32 linear", "4 data 8 32 linear"],
        "strong scaling"
    );
    assert_eq!(rows(""), ["1 none 64 - -", "2 data 64 128 none", "4 data 64 256 none"], "the default is that of each");
}

#[test]
fn one_gpu_is_the_same_cell_however_its_batch_is_given() {
    let digest = |training: &str, hardware: &str| {
        let text = format!(
            "[model]\nname = 'softmax'\n[training]\nlearning_rate = 1\nsteps = 1\n{training}\n[hardware]\n{hardware}"
        );
        Value::Table(read(&text).cells[0].config.clone()).digest()
    };
    let alone = digest("batch_size = 64", "gpus = 1");
    assert_eq!(alone, digest("batch_global = 64", "gpus = 1"));
    assert_eq!(alone, digest("", "gpus = [1, 2]\nparallelism = 'data'"));
    assert_eq!(
        digest("batch_size = 16", "gpus = 4\nparallelism = 'data'"),
        digest("batch_global = 64", "gpus = 4\nparallelism = 'data'")
    );
}

#[test]
fn pipeline_stages_process_the_whole_batch_and_one_gpu_keeps_their_micro_batches() {
    let fields = [
        "hardware.gpus",
        "hardware.parallelism",
        "training.batch_size",
        "training.batch_global",
        "training.micro_batches",
    ];
    let rows = |training: &str| {
        let text = format!(
            "[model]\nname = 'gpt2'\n[training]\nlearning_rate = 1\nsteps = 1\n{training}\n[hardware]\ngpus = [1, 2, 4]\nparallelism = 'pipeline'"
        );
        values(&read(&text), &fields)
    };
    let expected = |micro| ["1 none", "2 pipeline", "4 pipeline"].map(|start| format!("{start} 32 - {micro}"));
    assert_eq!(rows("batch_size = 32"), expected(8));
    assert_eq!(rows("batch_global = 32\nmicro_batches = 16"), expected(16));
}

#[test]
fn threads_stand_for_gpus_and_line_is_shared_by_all() {
    let text = "[model]\nname = 'linear'\n[training]\nlearning_rate = 1\nsteps = 1\n[hardware]\ndevice = 'cpu'\ncpu_ranks = [1, 2, 4]\nparallelism = 'data'";
    let fields =
        ["hardware.cpu_ranks", "hardware.gpus", "hardware.parallelism", "training.batch_size", "training.batch_global"];
    assert_eq!(values(&read(text), &fields), ["- - none 4 -", "2 - data 2 4", "4 - data 1 4"]);
}

#[test]
fn a_program_gets_its_batch_per_gpu_only_from_a_global_batch() {
    let fields = ["hardware.gpus", "training.batch_size", "training.batch_global"];
    let rows = |training: &str| {
        let text = format!("program.command = ['x']\n{training}\n[hardware]\ngpus = [1, 2]\nparallelism = 'data'");
        values(&read(&text), &fields)
    };
    assert_eq!(rows("training.batch_global = 32"), ["1 32 -", "2 16 32"]);
    assert_eq!(rows("training.batch_size = 32"), ["1 32 -", "2 32 -"]);
    assert_eq!(rows(""), ["1 - -", "2 - -"]);
}

#[test]
fn a_command_can_use_the_global_batch_of_every_cell() {
    let commands = |training: &str, hardware: &str| {
        let text = format!("program.command = ['x', '{{training.batch_global}}']\n{training}\n[hardware]\n{hardware}");
        let manifest = read(&text);
        let program = manifest.program.unwrap();
        manifest.cells.iter().map(|cell| program.argv(cell).unwrap().remove(1)).collect::<Vec<_>>()
    };
    let several = "gpus = [1, 2, 4]\nparallelism = 'data'";
    let strong = commands("training.batch_global = [64, 128]", several);
    assert_eq!(strong, ["64", "64", "64", "128", "128", "128"]);
    assert_eq!(commands("training.batch_global = 64", "gpus = 1"), ["64"]);
    assert_eq!(commands("training.batch_size = 64", several), ["64", "128", "256"]);
    let ranks = "device = 'cpu'\ncpu_ranks = [1, 2]\nparallelism = 'data'";
    assert_eq!(commands("training.batch_global = 64", ranks), ["64", "64"]);
}

#[test]
fn inference_batch_sizes_are_one_value_and_not_an_axis() {
    let text = format!("seed = [1, 2]\n{SMALL}[inference]\nbatch_sizes = [1, 32, 8]");
    assert_eq!(values(&read(&text), &["seed", "inference.batch_sizes"]), ["1 [1, 32, 8]", "2 [1, 32, 8]"]);
    assert!(!read(SMALL).cells[0].config.contains_key("inference.batch_sizes"));
}

#[test]
fn deterministic_false_does_not_change_the_identity() {
    let read = |word: &str| read(&SMALL.replace("epochs", &format!("deterministic = {word}, epochs")));
    let key = "training.deterministic";
    assert_eq!(values(&read("true"), &[key]), ["true"]);
    assert!(!read("false").cells[0].config.contains_key(key));
    let both = read("[false, true]");
    assert_eq!(both.cells.iter().map(|cell| cell.config.contains_key(key)).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn defaults_follow_the_model_and_the_choices() {
    let text = "seed = 18446744073709551615\n[model]\nname = 'linear'\n[training]\noptimizer = 'adam'\nlearning_rate = 1\nsteps = 9\nschedule = 'step'\nschedule_step_size = 3\n[objective]\nmetric = 'accuracy'";
    insta::assert_snapshot!(listing(&read(text).cells[0]), @r"
    data.name = line
    hardware.device = auto
    hardware.parallelism = none
    model.initial_bias = -0.3
    model.initial_weight = 0.3
    model.name = linear
    training.batch_size = 4
    training.beta1 = 0.9
    training.beta2 = 0.999
    training.epsilon = 1e-8
    training.learning_rate = 1.0
    training.optimizer = adam
    training.precision = fp32
    training.schedule = step
    training.schedule_gamma = 0.1
    training.schedule_step_size = 3
    training.steps = 9
    -- settings
    container.image = host
    experiment.name = test
    objective.direction = maximize
    objective.metric = accuracy
    telemetry.hz = 10
    telemetry.idle_s = 2.0
    -- seed 18446744073709551615
    ");
}

#[test]
fn detectors_have_defaults_of_their_own() {
    let text = "model.name = ['yolov3', 'maskrcnn']\n[training]\nlearning_rate = 0.1\nsteps = 1\n[data]\nname = ['scenes', 'coco']\npath = 'here'";
    let fields = [
        "data.name",
        "data.side",
        "model.classes",
        "model.size",
        "training.batch_size",
        "data.train_count",
        "data.path",
    ];
    insta::assert_snapshot!(values(&read(text), &fields).join("\n"), @r"
    scenes 416 80 full 32 10000 -
    coco 416 80 full 32 - here
    scenes 512 80 full 16 10000 -
    coco 512 80 full 16 - here
    ");
    let alone = read("model.name = 'yolov3'\n[training]\nlearning_rate = 0.1\nsteps = 1");
    assert_eq!(
        values(&alone, &["data.name", "data.generator_version", "data.seed", "data.eval_count"]),
        ["scenes 1 0 2000"]
    );
}

#[test]
fn a_program_takes_no_defaults_of_training() {
    let text = "[program]\ncommand = ['x', '{lr}']\n[params]\nlr = 0.5\n[model]\nname = 'bert-base'\nhidden = 7\n[training]\nprecision = 'bf16'";
    let manifest = read(text);
    insta::assert_snapshot!(listing(&manifest.cells[0]), @r"
    hardware.device = auto
    hardware.parallelism = none
    model.hidden = 7
    model.name = bert-base
    params.lr = 0.5
    training.precision = bf16
    -- settings
    container.image = host
    experiment.name = test
    telemetry.hz = 10
    telemetry.idle_s = 2.0
    -- seed 1
    ");
    assert_eq!(manifest.program.unwrap().argv(&manifest.cells[0]).unwrap(), ["x", "0.5"]);
}

#[test]
fn axes_span_a_product_in_the_order_of_the_table_and_the_seed_is_fastest() {
    let text =
        "seed = ['7', 8]\n[training]\nlearning_rate = [0.1, 0.2]\nepochs = 1\n[model]\nname = ['softmax', 'mnist_mlp']";
    let manifest = read(text);
    assert_eq!(manifest.axes, ["model.hidden", "model.name", "training.learning_rate", "seed"]);
    insta::assert_snapshot!(values(&manifest, &["model.name", "training.learning_rate", "seed"]).join("\n"), @r"
    softmax 0.1 7
    softmax 0.1 8
    softmax 0.2 7
    softmax 0.2 8
    mnist_mlp 0.1 7
    mnist_mlp 0.1 8
    mnist_mlp 0.2 7
    mnist_mlp 0.2 8
    ");
}

#[test]
fn fields_vanish_where_they_do_not_apply_and_equal_cells_merge() {
    let text = "[model]\nname = 'softmax'\n[training]\noptimizer = ['sgd', 'momentum']\nmomentum = [0.8, 0.9]\nlearning_rate = 1\nepochs = 1";
    let manifest = read(text);
    assert_eq!(
        values(&manifest, &["training.optimizer", "training.momentum"]),
        ["sgd -", "momentum 0.8", "momentum 0.9"]
    );
}

#[test]
fn zipped_axes_vary_together() {
    let text = "[model]\nname = ['softmax', 'mnist_mlp']\n[training]\noptimizer = ['sgd', 'adam']\nlearning_rate = [0.1, 0.001]\nepochs = 1\n[grid]\nzip = [['training.learning_rate', 'training.optimizer']]";
    assert_eq!(
        values(&read(text), &["model.name", "training.optimizer", "training.learning_rate"]),
        ["softmax sgd 0.1", "softmax adam 0.001", "mnist_mlp sgd 0.1", "mnist_mlp adam 0.001"]
    );
}

#[test]
fn a_zipped_axis_may_repeat_a_value() {
    let text = "[model]\nname = 'softmax'\n[training]\noptimizer = ['sgd', 'sgd', 'adam']\nlearning_rate = [0.1, 0.05, 0.001]\nepochs = 1\n[grid]\nzip = [['training.optimizer', 'training.learning_rate']]";
    assert_eq!(
        values(&read(text), &["training.optimizer", "training.learning_rate"]),
        ["sgd 0.1", "sgd 0.05", "adam 0.001"]
    );
}

#[test]
fn included_entries_replace_the_axes_that_they_name() {
    let text = "[model]\nname = ['softmax', 'mnist_mlp']\n[training]\noptimizer = ['sgd', 'adam']\nlearning_rate = [0.1, 0.001]\nepochs = 1\n[grid]\nzip = [['training.learning_rate', 'training.optimizer']]\ninclude = [{ model.name = 'mnist_mlp', 'model.hidden' = [1, 2], training.optimizer = 'momentum' }]";
    let manifest = read(text);
    assert_eq!(
        values(&manifest, &["model.hidden", "training.optimizer", "training.learning_rate"])[4..],
        ["1 momentum 0.1", "1 momentum 0.001", "2 momentum 0.1", "2 momentum 0.001"]
    );
}

#[test]
fn an_included_cell_that_exists_is_merged() {
    let manifest = read(&format!("{SMALL}grid.include = [{{ seed = [1, 2] }}]"));
    assert_eq!(values(&manifest, &["seed"]), ["1", "2"]);
}

#[test]
fn excluded_entries_match_resolved_cells() {
    let text = "seed = [1, 2, 3]\n[model]\nname = ['softmax', 'mnist_mlp']\n[training]\nlearning_rate = [1, 0.5]\nepochs = 1\n[grid]\nexclude = [{ model = { name = 'softmax' }, data.train_count = 10000, seed = [1, 3] }, { training.learning_rate = 1.0 }]";
    let manifest = read(text);
    assert_eq!(
        values(&manifest, &["model.name", "training.learning_rate", "seed"]),
        ["softmax 0.5 2", "mnist_mlp 0.5 1", "mnist_mlp 0.5 2", "mnist_mlp 0.5 3"]
    );
}

#[test]
fn excluded_cells_may_be_invalid() {
    let text = "[model]\nname = ['linear', 'softmax']\n[data]\nname = ['line', 'digits']\n[training]\nlearning_rate = 0.01\nsteps = 1\n[grid]\nexclude = [{ model.name = 'linear', data.name = 'digits' }, { model.name = 'softmax', data.name = 'line' }]";
    assert_eq!(values(&read(text), &["model.name", "data.name"]), ["linear line", "softmax digits"]);
}

#[test]
fn parameters_keep_their_types_and_reach_the_command() {
    let text = "seed = [1, 2]\n[program]\ncommand = ['x', '{b}{a}', '{seed}', '{gpus}']\n[params]\nb = [true, 1]\na = ['u', 1.0]\n";
    let manifest = read(text);
    let program = manifest.program.as_ref().unwrap();
    let commands: Vec<_> = manifest.cells.iter().map(|cell| program.argv(cell).unwrap()[1..].join(" ")).collect();
    assert_eq!(
        commands,
        ["trueu 1 1", "trueu 2 1", "1u 1 1", "1u 2 1", "true1.0 1 1", "true1.0 2 1", "11.0 1 1", "11.0 2 1"]
    );
}

#[test]
fn paths_stay_as_written_and_are_resolved_apart() {
    let text = "[model]\nname = 'mnist_cnn'\n[data]\nname = 'idx'\npath = ['mnist', '/fashion']\n[training]\nlearning_rate = 1\nepochs = 1";
    let manifest = parse(text, "a/b.toml").unwrap();
    assert_eq!(values(&manifest, &["data.path", "data.validation_count"]), ["mnist 0", "/fashion 0"]);
    assert!(manifest.cells.iter().all(|cell| !cell.config.contains_key("data.path")));
    let paths: Vec<_> = manifest.cells.iter().filter_map(|cell| manifest.data_path(cell)).collect();
    assert_eq!(paths, [Path::new("a/mnist"), Path::new("/fashion")]);
}

#[test]
fn the_objective_knows_the_direction_of_known_metrics() {
    let objective = |text: &str| read(&format!("{SMALL}{text}")).objective.unwrap();
    let direction = |text: &str| objective(text).direction;
    assert_eq!(direction("objective.metric = 'accuracy'"), Direction::Maximize);
    assert_eq!(direction("objective.metric = 'train_time'"), Direction::Minimize);
    assert_eq!(direction("objective = { metric = 'accuracy', direction = 'minimize' }"), Direction::Minimize);
    assert_eq!(direction("objective = { metric = 'f1', direction = 'maximize' }"), Direction::Maximize);
}

#[test]
fn a_large_grid_that_is_allowed_expands() {
    let numbers = |count: usize| (1..=count).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let text = format!(
        "seed = [{}]\n[model]\nname = 'mnist_mlp'\nhidden = [{}]\n[training]\nlearning_rate = 1\nepochs = 1",
        numbers(100),
        numbers(1000)
    );
    assert_eq!(read(&text).cells.len(), 100_000);
}
