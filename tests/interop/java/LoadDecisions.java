// What Apache Pulsar's own classes decide about load: scenarios in a file, one JSON object a line; one line of answer each.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.LoadData;
import org.apache.pulsar.broker.loadbalance.LoadSheddingStrategy;
import org.apache.pulsar.broker.loadbalance.ModularLoadManagerStrategy;
import org.apache.pulsar.common.util.ObjectMapperFactory;
import org.apache.pulsar.policies.data.loadbalancer.BrokerData;
import org.apache.pulsar.policies.data.loadbalancer.BundleData;
import org.apache.pulsar.policies.data.loadbalancer.LocalBrokerData;
import org.apache.pulsar.policies.data.loadbalancer.TimeAverageBrokerData;

public class LoadDecisions {
    private static final ObjectMapper JSON = ObjectMapperFactory.getMapper().getObjectMapper();

    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            System.out.println(JSON.writeValueAsString(decided(JSON.readTree(line))));
        }
    }

    private static Map<String, Object> decided(JsonNode scenario) throws Exception {
        ServiceConfiguration settings = new ServiceConfiguration();
        settings.setLoadBalancerHistoryResourcePercentage(scenario.get("history").asDouble());
        settings.setLoadBalancerBundleUnloadMinThroughputThreshold(scenario.get("leastMb").asDouble());
        settings.setLowerBoundarySheddingEnabled(scenario.get("idle").asBoolean());
        settings.setMaxUnloadPercentage(scenario.get("part").asDouble());
        settings.setMinUnloadMessage(scenario.get("leastMessages").asInt());
        settings.setLoadBalancerAvgShedderHitCountHighThreshold(scenario.get("highHits").asInt());
        LoadSheddingStrategy shedding = (LoadSheddingStrategy) Class.forName(scenario.get("strategy").asText())
                .getDeclaredConstructor().newInstance();
        List<Map<String, Object>> rounds = new ArrayList<>();
        Map<String, Object> answer = new TreeMap<>();
        for (JsonNode round : scenario.get("rounds")) {
            LoadData load = new LoadData();
            for (var broker : round.get("brokers").properties()) {
                LocalBrokerData local = JSON.treeToValue(broker.getValue(), LocalBrokerData.class);
                load.getBrokerData().put(broker.getKey(), new BrokerData(local));
            }
            for (var bundle : round.get("bundles").properties()) {
                load.getBundleData().put(bundle.getKey(), JSON.treeToValue(bundle.getValue(), BundleData.class));
            }
            for (JsonNode bundle : round.get("lately")) {
                load.getRecentlyUnloadedBundles().put(bundle.asText(), System.currentTimeMillis());
            }
            Map<String, Object> moves = new TreeMap<>();
            shedding.findBundlesForUnloading(load, settings).asMap()
                    .forEach((broker, bundles) -> moves.put(broker, new ArrayList<>(bundles)));
            rounds.add(moves);
            load.getBrokerData().forEach((broker, data) -> {
                TimeAverageBrokerData averages = new TimeAverageBrokerData();
                averages.reset(data.getLocalData().getLastStats().keySet(), load.getBundleData(), null);
                data.setTimeAverageData(averages);
            });
            ModularLoadManagerStrategy placement =
                    (ModularLoadManagerStrategy) Class.forName(scenario.get("placement").asText())
                            .getDeclaredConstructor().newInstance();
            Map<String, Object> places = new TreeMap<>();
            for (int attempt = 0; attempt < 40; attempt++) {
                placement.selectBroker(new HashSet<>(load.getBrokerData().keySet()), new BundleData(10, 1000), load,
                        settings).ifPresent(broker -> places.put(broker, true));
            }
            answer.put("places", new ArrayList<>(places.keySet()));
        }
        answer.put("rounds", rounds);
        return answer;
    }
}
