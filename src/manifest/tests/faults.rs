use super::*;
use proptest::prelude::*;

const SMALL: &str = "model.name = 'softmax'\ntraining = { learning_rate = 0.1, epochs = 1 }\n";

#[test]
fn all_faults_are_reported_at_once() {
    let text = r#"naem = "x"
repeats = 0
seed = [1, 2, 1]

[model]
name = "sotfmax"
hidden = "many"

[training]
optimiser = "adam"
learning_rate = [0.1, "fast", nan, 1e-1]
batch_size = 2_000_000
epochs = 2.0

[hardware]
gpu = 2
power_limit_w = 300

[nonsense]
a = 1

[telemetry]
hz = [1, 2]
"#;
    insta::assert_snapshot!(faults(text), @r#"
    m:1:1: unknown key `naem` (did you mean `name`?)
    m:2:11: repeats is 0 (it must be at least 1)
    m:3:15: seed has the value 1 twice (remove one)
    m:6:8: model.name is the text "sotfmax" (it must be linear, softmax, mnist_mlp, mnist_cnn, resnet50, vgg16, lstm, gru, bert, gpt2, dqn, yolov3 or maskrcnn; did you mean `softmax`?)
    m:7:10: model.hidden is the text "many" (it must be a whole number from 1 to 65536)
    m:10:1: unknown key `training.optimiser` (did you mean `optimizer`?)
    m:11:23: training.learning_rate is the text "fast" (it must be a finite number above 0)
    m:11:31: training.learning_rate is nan (it must be a finite number above 0)
    m:11:36: training.learning_rate has the value 1e-1 twice (remove one)
    m:12:14: training.batch_size is 2_000_000 (it must be at most 1048576)
    m:13:10: training.epochs is 2.0 (it must be a whole number from 1)
    m:16:1: unknown key `hardware.gpu` (did you mean `gpus`?)
    m:19:2: unknown key `nonsense` (known keys: name, description, seed, repeats, [model], [data], [training], [inference], [hardware], [container], [program], [params], [telemetry], [protocol], [limits], [objective], [grid], [slurm])
    m:23:6: telemetry.hz is a list (it holds for the whole manifest: give one value)
    "#);
}

#[test]
fn start_temperatures_need_a_nonempty_range() {
    let fault = |least: i64| faults(&format!("{SMALL}[protocol]\ncool_to_c = 45\nmin_start_c = {least}"));
    insta::assert_snapshot!(fault(46), @"m:5:15: protocol.min_start_c is 46, but protocol.cool_to_c is 45 (it must be at most that)");
}

#[test]
fn values_that_the_trainer_refuses_have_positions() {
    let text = "model.name = 'softmax'\n[training]\nepochs = 1\nlearning_rate = 1\nbatch_size = 65_537";
    insta::assert_snapshot!(faults(text), @"m:5:14: training.batch_size is 65537, but the built-in trainer takes at most 65536 on each");
    let text = "model.name = 'gru'\n[data]\nname = 'text'\npath = 'x'\nvalidation_share = [0.5, 0, 1]\n[training]\nsteps = 1\nlearning_rate = 1";
    insta::assert_snapshot!(faults(text), @r"
    m:5:26: data.validation_share is 0, but the built-in trainer evaluates with that part of the text (use a number above 0)
    m:5:29: data.validation_share is 1 (it must be a number from 0 and below 1)
    ");
}

#[test]
fn inference_batch_sizes_are_distinct_integers() {
    let fault = |sizes: &str| faults(&format!("{SMALL}[inference]\nbatch_sizes = {sizes}"));
    insta::assert_snapshot!(["8", "[]", "[0]", "[8, 'x']", "[8, 1, 8]", "[70000]"].map(fault).join("\n"), @r"
    m:4:15: inference.batch_sizes is 8 (it must be a list of 1 to 16 different whole numbers from 1 to 65536)
    m:4:15: inference.batch_sizes has 0 values (it must be a list of 1 to 16 different whole numbers from 1 to 65536)
    m:4:15: inference.batch_sizes is 0 (it must be at least 1)
    m:4:15: inference.batch_sizes is the text 'x' (it must be a whole number from 1 to 65536)
    m:4:15: inference.batch_sizes has the value 8 twice (remove one)
    m:4:15: inference.batch_sizes is 70000 (it must be at most 65536)
    ");
}

#[test]
fn missing_keys_are_named_with_what_they_take() {
    insta::assert_snapshot!(faults(""), @r"
    m:1:1: model.name is missing (it must be linear, softmax, mnist_mlp, mnist_cnn, resnet50, vgg16, lstm, gru, bert, gpt2, dqn, yolov3 or maskrcnn; or give [program])
    m:1:1: training has neither epochs nor steps (give one of them)
    m:1:1: training.learning_rate is missing (it must be a finite number above 0)
    ");
    insta::assert_snapshot!(faults("[model]\nname = 'softmax'\n\n[data]\nname = 'idx'\n\n[training]\nschedule = 'step'"), @r"
    m:4:1: data.path is missing (data.name is idx, cifar10, folder, text or coco: it must be one line of text, 1 to 4096 characters)
    m:7:1: training has neither epochs nor steps (give one of them)
    m:7:1: training.learning_rate is missing (it must be a finite number above 0)
    m:7:1: training.schedule_step_size is missing (training.schedule is step: it must be a whole number from 1)
    ");
}

#[test]
fn invalid_combinations_are_refused() {
    let small = |more: &str| faults(&format!("{SMALL}{more}"));
    insta::assert_snapshot!(small("data.name = 'line'"), @"m:3:13: `line` does not fit `softmax` (use digits or idx)");
    insta::assert_snapshot!(faults("model.name = 'linear'\n[data]\nname = 'digits'\n[training]\nbatch_size = 5\nlearning_rate = 1\nsteps = 1\nepochs = 1"), @r"
    m:3:8: `digits` does not fit `linear` (use line)
    m:5:14: training.batch_size is 5, but `linear` trains on its 4 samples together (use 4)
    m:8:10: training has both epochs and steps (give one of them)
    ");
    insta::assert_snapshot!(faults("model.name = 'softmax'\n[data]\ntrain_count = 10\n[training]\nprecision = ['fp32', 'bf16']\nlearning_rate = 1"), @r"
    m:4:1: training has neither epochs nor steps (give one of them)
    m:4:1: training.batch_size is 64, but data.train_count is 10 (a batch must fit into the data)
    m:5:22: `bf16` is not available for `softmax` (use fp32)
    ");
    insta::assert_snapshot!(faults("program.command = ['x']\nhardware.gpus = 2"), @"m:2:17: hardware.gpus is 2, but hardware.parallelism is none (it must be data or pipeline)");
    insta::assert_snapshot!(small("[hardware]\nsm_clock_mhz = 1\nmemory_clock_mhz = [1, 2]\ndevice = 'cpu'\ngpus = 1"), @r"
    m:4:1: hardware.sm_clock_mhz has no effect (it applies where hardware.device is auto or cuda)
    m:5:1: hardware.memory_clock_mhz has no effect (it applies where hardware.device is auto or cuda)
    m:7:1: hardware.gpus has no effect (it applies where hardware.device is auto or cuda)
    ");
}

#[test]
fn parallelism_and_batch_sizes_are_checked() {
    let with = |hardware: &str, training: &str| {
        faults(&format!(
            "[model]\nname = 'mnist_mlp'\n[training]\nlearning_rate = 1\nsteps = 1\n{training}\n[hardware]\n{hardware}"
        ))
    };
    insta::assert_snapshot!(with("gpus = [1, 2]\nparallelism = ['none', 'data']", ""), @"m:8:12: hardware.gpus is 2, but hardware.parallelism is none (it must be data)");
    insta::assert_snapshot!(with("gpus = 2\nparallelism = 'pipeline'", ""), @"m:9:15: `pipeline` parallelism is not available for `mnist_mlp` (use data)");
    let staged = "[model]\nname = 'bert'\n[training]\nlearning_rate = 1\nsteps = 1\nbatch_size = 4\n[hardware]\ngpus = 2\nparallelism = ";
    insta::assert_snapshot!(faults(&format!("{staged}'pipeline'")), @"m:9:15: training.micro_batches is 8 by default, but training.batch_size is 4 (a micro-batch has at least one sample: give 4 micro-batches or fewer)");
    insta::assert_snapshot!(faults(&format!("{staged}'pipeline'").replace("batch_size", "batch_global")), @"m:9:15: training.micro_batches is 8 by default, but training.batch_global is 4 (a micro-batch has at least one sample: give 4 micro-batches or fewer)");
    insta::assert_snapshot!(faults(&format!("{staged}'none'")), @"m:8:8: hardware.gpus is 2, but hardware.parallelism is none (it must be data or pipeline)");
    insta::assert_snapshot!(with("gpus = 1\nparallelism = 'data'", ""), @"m:9:15: hardware.parallelism is data, but hardware.gpus is not 2 or 4 (add gpus)");
    insta::assert_snapshot!(with("device = 'cpu'\nparallelism = 'data'", ""), @"m:9:15: hardware.parallelism is data, but hardware.cpu_ranks is not 2 or 4 (add cpu_ranks)");
    insta::assert_snapshot!(with("gpus = 3\nparallelism = 'data'\ncpu_ranks = 2", ""), @r"
    m:8:8: hardware.gpus is 3 (it must be 1, 2 or 4)
    m:10:1: hardware.cpu_ranks has no effect (it applies where hardware.device is cpu)
    ");
    insta::assert_snapshot!(with("gpus = 4\nparallelism = 'data'", "batch_size = 8\nbatch_global = 32"), @"m:7:16: training has both batch_size and batch_global (give one of them)");
    insta::assert_snapshot!(with("gpus = [1, 2, 4]\nparallelism = 'data'", "batch_global = 30"), @"m:6:16: training.batch_global is 30, but 4 GPUs share it (it must be a multiple of 4)");
    insta::assert_snapshot!(with("gpus = 4\nparallelism = 'data'\n[data]\ntrain_count = 100", "batch_global = 30"), @"m:6:16: training.batch_global is 30, but 4 GPUs share it (it must be a multiple of 4)");
    insta::assert_snapshot!(with("gpus = 2\nparallelism = 'data'\n[data]\ntrain_count = 100", "batch_size = 64"), @"m:6:14: training.batch_size is 64 on each of 2 GPUs, but data.train_count is 100 (the batch of all must fit into the data: 128 in all)");
    insta::assert_snapshot!(with("gpus = 2\nparallelism = 'data'\n[data]\ntrain_count = 100", "batch_global = 128"), @"m:6:16: training.batch_global is 128, but data.train_count is 100 (the batch of all must fit into the data: 128)");
    insta::assert_snapshot!(with("device = 'cpu'", "learning_rate_scaling = 'linear'"), @"m:6:1: training.learning_rate_scaling has no effect (it applies where hardware.parallelism is data)");
}

#[test]
fn sides_and_classes_of_detection_data_are_checked() {
    let with = |model: &str, data: &str| {
        faults(&format!(
            "[model]\nname = '{model}'\nclasses = 81\n[data]\n{data}\n[training]\nlearning_rate = 1\nsteps = 1"
        ))
    };
    insta::assert_snapshot!(with("yolov3", "side = 100"), @r"
    m:3:11: model.classes is 81, but `scenes` have at most 80 (use fewer)
    m:5:8: data.side is 100, but `yolov3` takes only multiples of 32 (use 96)
    ");
    insta::assert_snapshot!(with("maskrcnn", "side = 32"), @r"
    m:3:11: model.classes is 81, but `scenes` have at most 80 (use fewer)
    m:5:8: data.side is 32, but `scenes` have at least 64 (use 64 or more)
    ");
    insta::assert_snapshot!(with("maskrcnn", "side = 1088\nname = 'coco'"), @r"
    m:4:1: data.path is missing (data.name is idx, cifar10, folder, text or coco: it must be one line of text, 1 to 4096 characters)
    m:5:8: data.side is 1088 (it must be at most 1024)
    ");
    insta::assert_snapshot!(with("vgg16", "side = 544"), @"m:5:8: data.side is 544, but `vgg16` takes at most 512 (use fewer)");
    insta::assert_snapshot!(with("resnet50", "name = 'scenes'\nside = 96"), @r"
    m:3:11: model.classes is 81, but `scenes` have at most 80 (use fewer)
    m:5:8: `scenes` does not fit `resnet50` (use shapes, cifar10 or folder)
    ");
}

#[test]
fn keys_without_effect_are_refused() {
    let text = "[model]\nname = 'softmax'\ndropout = 0.5\n[training]\noptimizer = 'adam'\nmomentum = [0.8, 0.9]\nlearning_rate = 1\nepochs = 1\n[params]\nx = 1";
    insta::assert_snapshot!(faults(text), @r"
    m:3:1: model.dropout has no effect (it applies where model.name is mnist_cnn, vgg16, bert or gpt2)
    m:6:1: training.momentum has no effect (it applies where training.optimizer is momentum)
    m:9:1: [params] has no effect without [program] (remove it, or add the program that takes it)
    ");
}

#[test]
fn faults_of_the_grid() {
    let grid = |grid: &str| {
        let head =
            "seed = [1, 2]\n[model]\nname = ['softmax']\n[training]\nlearning_rate = [1, 2, 3]\nepochs = 1\n[grid]\n";
        faults(&format!("{head}{grid}"))
    };
    insta::assert_snapshot!(grid("zip = [['seed', 'training.learning_rate'], ['seed'], ['training.epochs', 'training.lr', 'repeats', 1, 'model.hidden']]"), @r"
    m:8:8: the axes of a zip need equally many values, but seed has 2, training.learning_rate has 3 (give each as many)
    m:8:45: grid.zip names seed twice (an axis belongs to one group)
    m:8:55: grid.zip names training.epochs, which has one value (give it a list of values)
    m:8:74: unknown key `training.lr` (did you mean `learning_rate`?)
    m:8:89: grid.zip names repeats, which cannot be a list (remove it)
    m:8:100: grid.zip names 1 (it must be a key, as text)
    m:8:103: grid.zip names model.hidden, which this manifest does not give (give it a list of values)
    ");
    insta::assert_snapshot!(faults("seed = [1, 2, 1]\n[model]\nname = 'softmax'\n[training]\nlearning_rate = [1, 2, 1.0]\nbatch_size = [8, 8]\nepochs = 1\n[grid]\nzip = [['seed', 'training.learning_rate']]\ninclude = [{ seed = [4, 4] }]"), @r"
    m:1:15: seed and training.learning_rate have the same values in places 1 and 3 (remove one of each)
    m:6:18: training.batch_size has the value 8 twice (remove one)
    m:10:25: seed has the value 4 twice (remove one)
    ");
    insta::assert_snapshot!(grid("zip = ['seed', 'training.learning_rate']\nexcept = []"), @r#"
    m:8:8: grid.zip holds the text 'seed' (it must be a list of lists of keys, such as [["seed", "training.learning_rate"]])
    m:8:16: grid.zip holds the text 'training.learning_rate' (it must be a list of lists of keys, such as [["seed", "training.learning_rate"]])
    m:9:1: unknown key `grid.except` (known keys: zip, include, exclude)
    "#);
    insta::assert_snapshot!(grid("include = [{}, 1, { repeats = 3, trainin.epochs = 1 }]"), @r#"
    m:8:12: grid.include has an empty entry (name at least one key)
    m:8:16: grid.include holds 1 (it must be a list of tables, such as [{ model.name = "softmax" }])
    m:8:21: repeats holds for the whole manifest (name only keys that can be a list)
    m:8:42: unknown key `trainin.epochs` (did you mean `training.epochs`?)
    "#);
    insta::assert_snapshot!(grid("exclude = [{ seed = 3 }, { seed = [], 'model.name' = 'softmax', model.name = 'softmax' }]"), @r"
    m:8:12: this entry of grid.exclude matches no cell (remove or correct it)
    m:8:35: seed is an empty list (give at least one value)
    m:8:71: model.name is named twice in one entry (remove one)
    ");
    insta::assert_snapshot!(grid("exclude = [{ model.name = 'softmax' }]"), @"m:7:1: grid.exclude leaves no cell (exclude less)");
    insta::assert_snapshot!(faults(&format!("{SMALL}seed = []")), @"m:3:8: seed is an empty list (give at least one value)");
}

#[test]
fn too_large_a_grid_is_refused_with_its_count_before_it_is_expanded() {
    let list = (1..=1000).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let text = format!(
        "seed = [{list}]\n[model]\nname = 'mnist_mlp'\nhidden = [{list}]\n[data]\ntrain_count = [{list}]\n[training]\nlearning_rate = 1\nepochs = 1"
    );
    assert_eq!(faults(&text), "m:1:1: the grid has 1000000000 cells (at most 100000 are allowed: shorten its lists)");
    let params: String = (0..100).map(|n| format!("p{n} = [0, 1, 2, 3]\n")).collect();
    let text = format!("program.command = ['x']\n[params]\n{params}");
    assert!(faults(&text).contains("more than 10^38 cells"));
}

#[test]
fn more_entries_than_can_be_combined_are_refused() {
    let entries = vec!["{ seed = 1 }"; 101].join(", ");
    assert_eq!(
        faults(&format!("{SMALL}grid.exclude = [{entries}]")),
        "m:3:16: grid.exclude has 101 entries (at most 100 are allowed: use lists)"
    );
    let params: String = (0..101).map(|n| format!("p{n} = 1\n")).collect();
    assert_eq!(
        faults(&format!("program.command = ['x']\n[params]\n{params}")),
        "m:2:1: [params] has 101 parameters (at most 100 are allowed)"
    );
}

#[test]
fn faults_of_programs() {
    insta::assert_snapshot!(faults("[program]\nfiles = ['a', 'a', '']\n"), @r"
    m:1:1: program.command is missing (give the program and its arguments as a list)
    m:2:15: program.files names `a` twice (remove one)
    m:2:20: program.files names an empty path (remove it)
    ");
    insta::assert_snapshot!(faults("[program]\ncommand = []"), @"m:2:11: program.command is empty (its first item is the program)");
    insta::assert_snapshot!(faults("[program]\ncommand = ['x', 1]\ncomand = 1"), @r"
    m:2:17: program.command holds 1 (each item must be text)
    m:3:1: unknown key `program.comand` (did you mean `command`?)
    ");
    insta::assert_snapshot!(faults("[program]\ncommand = ['x', '{lr}', '{momentum}']\nparams.lr = 1"), @r"
    m:2:25: unknown placeholder `{momentum}` (there are: seed, gpus, hardware.device, hardware.parallelism, container.image, experiment.name, telemetry.hz, telemetry.idle_s)
    m:3:1: unknown key `program.params` (known keys: command, files, identity, metrics)
    ");
    insta::assert_snapshot!(faults("[program]\ncommand = ['x', '{lr}']\n[parms]\nlr = [1, 2]\n"), @"m:3:2: unknown key `parms` (did you mean the table `[params]`?)");
    insta::assert_snapshot!(faults("[program]\ncommand = ['x', '{training.batch_size}']\n[trainning]\nbatch_size = [1, 2]\n"), @"m:3:2: unknown key `trainning` (did you mean the table `[training]`?)");
    insta::assert_snapshot!(faults("[program]\ncommand = ['x',\n '{']"), @"m:3:2: a `{` in the command has no `}` after it (write {{ and }} for braces)");
    insta::assert_snapshot!(faults("[program]\ncommand = ['x', '{training.momentum}']\n[training]\noptimizer = ['sgd', 'momentum']\nmomentum = 0.5"), @"m:2:17: `{training.momentum}` has no value in 1 of 2 cells (give it one in each)");
    insta::assert_snapshot!(faults("[program]\ncommand = ['x']\n[params]\n'a b' = 1\nc = { d = 1 }\ne = [[1]]\nf = inf\ng = 1979-05-27"), @r"
    m:4:1: the parameter name `a b` is not allowed (use letters, digits, `_` and `-`)
    m:5:5: params.c is a table (it must be true, false, a finite number or text)
    m:6:6: params.e is a list (it must be true, false, a finite number or text)
    m:7:5: params.f is inf (it must be true, false, a finite number or text)
    m:8:5: params.g is 1979-05-27 (it must be true, false, a finite number or text)
    ");
    insta::assert_snapshot!(faults("program.command = ['x']\nprogram.identity = 'files'"), @"m:2:20: program.identity is 'files', but program.files names none (list the files of the program)");
    insta::assert_snapshot!(faults("program.command = ['x']\nmodel.name = 'Big Model'"), @"m:2:14: model.name is the text 'Big Model' (a name is made of a-z, 0-9, `_`, `.` and `-`)");
}

#[test]
fn faults_of_patterns_have_a_place() {
    let head = "program.command = ['x']\n[program.metrics]\n";
    insta::assert_snapshot!(faults(&format!("{head}a = 'acc (\\d'\nb = 'acc'\nc = 1\nd = {{ pattern = '(x)', kind = 'speed' }}\ne = {{ pattern = '(x)', unt = 's' }}\n'' = '(x)'")), @r#"
    m:3:5: program.metrics.a has the pattern `acc (\d`, which is not a regular expression: unclosed group
    m:4:5: program.metrics.b has the pattern `acc` without a group (put parentheses around the number)
    m:5:5: program.metrics.c is not a pattern (give a text, or a table with `pattern`)
    m:6:31: program.metrics.d has kind = speed (give "outcome" or "measured")
    m:7:5: program.metrics.e has a member `unt` (pattern, series, unit and kind are known)
    m:8:1: program.metrics. is not a metric's name (it must have 1 to 256 bytes)
    "#);
    insta::assert_snapshot!(faults("program.command = ['x']\nprogram.metrics = ['(x)']"), @"m:2:19: program.metrics is a list (it must be a table of patterns by the metrics' names)");
}

#[test]
fn gpu_settings_have_an_upper_limit() {
    insta::assert_snapshot!(faults(&format!("{SMALL}[hardware]\npower_limit_w = 99999999999")), @"m:4:17: hardware.power_limit_w is 99999999999 (it must be at most 1000000)");
}

#[test]
fn faults_of_settings() {
    let slip = faults(&format!("{SMALL}[objective]\nmetric = 'accuracyy'"));
    assert!(slip.contains("; did you mean `accuracy`?)"), "{slip}");
    insta::assert_snapshot!(faults(&format!("{SMALL}name = ''\ndescription = \"a\\u0007\"\n[limits]\ntimeout_s = 0\n[objective]\nmetric = 'f1'")), @r"
    m:3:8: name is empty (it must be one line of text, 1 to 200 characters)
    m:4:15: description holds a control character (it must be text of at most 10000 characters)
    m:6:13: limits.timeout_s is 0 (it must be a number above 0 and at most 31536000)
    m:8:10: objective.direction is missing: the better direction of `f1` is unknown (give minimize or maximize)
    ");
    insta::assert_snapshot!(faults(&format!("{SMALL}objective.direction = 'up'\nseed = [-1, 1.5, '1x', 18446744073709551616]")), @r"
    m:3:1: objective.metric is missing (name the metric that decides)
    m:3:23: objective.direction is the text 'up' (it must be minimize or maximize)
    m:4:9: seed is -1 (it must be a whole number from 0 to 18446744073709551615)
    m:4:13: seed is 1.5 (it must be a whole number from 0 to 18446744073709551615)
    m:4:18: seed is the text '1x' (it must be a whole number from 0 to 18446744073709551615)
    m:4:24: seed is 18446744073709551616 (it must be a whole number from 0 to 18446744073709551615)
    ");
    insta::assert_snapshot!(faults("model = 'softmax'\ntraining = 3"), @r"
    m:1:9: `model` is the text 'softmax' (it must be a table, [model])
    m:2:12: `training` is 3 (it must be a table, [training])
    ");
    insta::assert_snapshot!(faults("[[model]]\nname = 'softmax'"), @r"
    m:1:1: `model` is a list (it must be a table, [model])
    m:1:1: training has neither epochs nor steps (give one of them)
    m:1:1: training.learning_rate is missing (it must be a finite number above 0)
    ");
}

#[test]
fn syntax_errors_have_a_place_and_the_parsers_words() {
    insta::assert_snapshot!(faults("[model]\nname = \n"), @"m:2:8: this is not TOML: string values must be quoted, expected literal string");
    insta::assert_snapshot!(faults("[model]\nname = 'a'\nname = 'b'"), @"m:3:1: this is not TOML: duplicate key");
    insta::assert_snapshot!(faults("ü = 'é' x"), @"m:1:9: this is not TOML: unexpected key or value, expected newline, `#`");
    let pattern = faults("acc = \"acc (\\d+)\"");
    assert!(pattern.contains("write patterns and paths in single quotes, as 'acc (\\d+)'"), "{pattern}");
    assert!(faults(&format!("{}1", "a.".repeat(200_000))).contains("m:1:"));
    assert!(faults(&format!("a = {}", "[".repeat(200_000))).contains("m:1:"));
}

#[test]
fn a_file_that_cannot_be_a_manifest_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.toml");
    let said = || load(&path).unwrap_err().to_string().replace(&path.display().to_string(), "PATH");
    assert_eq!(said(), "there is no manifest `PATH` (check the path; manifests are TOML files)");
    std::fs::create_dir(&path).unwrap();
    assert_eq!(said(), "`PATH` is a directory (name a manifest file in it)");
    std::fs::remove_dir(&path).unwrap();
    std::fs::write(&path, b"name = 'x'\n\xff\xfe\x00rubbish").unwrap();
    assert_eq!(said(), "PATH:2:1: this is not UTF-8 text (a manifest is a TOML file)");
    std::fs::write(&path, b"\x00\x01\x02").unwrap();
    assert!(said().starts_with("PATH:1:1: this is not TOML"), "{}", said());
    std::fs::write(&path, " ".repeat(MOST_BYTES + 1)).unwrap();
    assert_eq!(said(), "`PATH` is longer than 1048576 bytes (a manifest is a short TOML file)");
    std::fs::write(&path, SMALL).unwrap();
    assert_eq!(load(&path).unwrap().directory, folder.path());
    assert_eq!(load(&path).unwrap().name, "m");
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,80}") {
        drop(parse(&text, "m"));
    }

    #[test]
    fn no_toml_panics(entries in proptest::collection::vec((0..fields().len(), 0_usize..14), 0..12), program in any::<bool>()) {
        const VALUES: [&str; 14] = [
            "1", "0", "-1", "0.5", "nan", "'adam'", "'softmax'", "[]", "[1, 2]", "['sgd', 'adam', 'linear']", "{ a = 1 }", "true",
            "[{ seed = 1 }]", "[['seed', 'training.learning_rate']]",
        ];
        let mut text = String::from(if program { "program.command = ['x', '{a}', '{seed}']\n" } else { "" });
        let mut keys = BTreeSet::new();
        for (row, value) in entries {
            let key = fields()[row].key.replace('*', "a");
            if keys.insert(key.clone()) && !(program && key == "program.command") {
                text.push_str(&format!("{key} = {}\n", VALUES[value]));
            }
        }
        if let Err(error) = parse(&text, "m") {
            prop_assert!(!error.faults().is_empty());
        }
    }
}
