import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.pulsar.admin.cli.PulsarAdminTool;
import picocli.CommandLine;
import picocli.CommandLine.Model.ArgSpec;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Model.OptionSpec;
import picocli.CommandLine.Model.PositionalParamSpec;

/**
 * {@code pulsar-admin}, many times in one process: each line of the input is a broker's URL and the words of a command, with
 * tabs between them; each line of the output whether it ended well, then what it printed as output and as errors, in Base64.
 * A URL alone asks for the commands that there are: lines of fields with tabs between them, a command's words first and then
 * each of its parameters (its names or its place, its type, how many values, whether it has to be given, what it is).
 */
public final class AdminCommands extends PulsarAdminTool {
    private AdminCommands(Properties properties) throws Exception {
        super(properties);
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream complained = new ByteArrayOutputStream();
        // One for each broker, as pulsar-shell has it: making one takes longer than most commands.
        Map<String, AdminCommands> tools = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            if (!tools.containsKey(words[0])) {
                Properties properties = new Properties();
                properties.setProperty("webServiceUrl", words[0]);
                tools.put(words[0], new AdminCommands(properties));
            }
            printed.reset();
            complained.reset();
            // New ones: broker-stats closes what it prints to, which would swallow all that comes behind.
            System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
            System.setErr(new PrintStream(complained, true, StandardCharsets.UTF_8));
            boolean isDone = true;
            if (words.length == 1) {
                tools.get(words[0]).tell("", tools.get(words[0]).commander);
            } else {
                isDone = tools.get(words[0]).run(Arrays.copyOfRange(words, 1, words.length));
            }
            out.println("> " + isDone + " " + text(printed) + " " + text(complained));
            out.flush();
        }
        System.exit(0);
    }

    private void tell(String words, CommandLine command) {
        for (Map.Entry<String, CommandLine> each : command.getSubcommands().entrySet()) {
            CommandSpec spec = each.getValue().getCommandSpec();
            // Its other names lead to the same command.
            if (spec.helpCommand() || !each.getKey().equals(spec.name())) {
                continue;
            }
            String name = (words + " " + each.getKey()).strip();
            if (!spec.subcommands().isEmpty()) {
                tell(name, each.getValue());
                continue;
            }
            System.out.println(name + "\t" + oneLine(spec.usageMessage().description()));
            for (ArgSpec argument : spec.args()) {
                boolean isHelp = argument instanceof OptionSpec option && (option.usageHelp() || option.versionHelp());
                if (!isHelp) {
                    System.out.println(told(argument));
                }
            }
        }
    }

    private static String told(ArgSpec argument) {
        String names = argument instanceof OptionSpec option ? String.join(",", option.names())
                : String.valueOf(((PositionalParamSpec) argument).index());
        String type = argument.type().getSimpleName();
        String needed = String.valueOf(argument.required());
        return String.join("\t", "", names, type, argument.arity().toString(), needed, oneLine(argument.description()));
    }

    private static String oneLine(String[] text) {
        return String.join(" ", text).replaceAll("\\s+", " ").strip();
    }

    private static String text(ByteArrayOutputStream bytes) {
        return "=" + Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
