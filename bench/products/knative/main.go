// The data plane of Knative Eventing's default Broker (mt-channel-broker on an InMemoryChannel), without Kubernetes: the same handlers that
// cmd/broker/ingress, cmd/in_memory/channel_dispatcher and cmd/broker/filter serve, from the same source tree, wired to one Broker with N
// Triggers that are given on the command line instead of being read from an API server. Everything listens on 127.0.0.1 only.
//
//	knative-imc -role ingress|channel|filter|all -ingress 127.0.0.1:P -channel 127.0.0.1:P -filter 127.0.0.1:P -triggers FILE
//	knative-imc -role channel-only -channel 127.0.0.1:P -triggers FILE      (the InMemoryChannel alone, straight to the subscribers)
//
// FILE: a JSON list of {"name": ..., "subscriber": URL, "type": TYPE or ""}; TYPE becomes `filters: [{exact: {type: TYPE}}]`.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"
	"knative.dev/pkg/configmap"
	"knative.dev/pkg/logging"
	"knative.dev/pkg/network/handlers"
	"knative.dev/pkg/tracing"
	tracingconfig "knative.dev/pkg/tracing/config"

	"knative.dev/eventing/pkg/apis/eventing"
	eventingduckv1 "knative.dev/eventing/pkg/apis/duck/v1"
	eventingv1 "knative.dev/eventing/pkg/apis/eventing/v1"
	"knative.dev/eventing/pkg/apis/feature"
	"knative.dev/eventing/pkg/broker"
	"knative.dev/eventing/pkg/broker/filter"
	"knative.dev/eventing/pkg/broker/ingress"
	"knative.dev/eventing/pkg/channel"
	"knative.dev/eventing/pkg/channel/fanout"
	"knative.dev/eventing/pkg/channel/multichannelfanout"
	"knative.dev/eventing/pkg/client/clientset/versioned/fake"
	"knative.dev/eventing/pkg/client/informers/externalversions"
	"knative.dev/eventing/pkg/eventingtls"
	"knative.dev/eventing/pkg/kncloudevents"
	"knative.dev/eventing/pkg/reconciler/sugar/trigger/path"
)

const systemNamespace = "knative-eventing"

type triggerSpec struct {
	Name       string `json:"name"`
	Subscriber string `json:"subscriber"`
	Type       string `json:"type"`
}

type settings struct {
	role, ingress, channel, filter, triggers, namespace, broker string
	async                                                       bool
	retry                                                       int
	backoffDelay, level                                         string
}

func main() {
	var s settings
	flag.StringVar(&s.role, "role", "all", "ingress, channel, filter, all (three in one process), or channel-only")
	flag.StringVar(&s.ingress, "ingress", "127.0.0.1:8080", "where the broker's ingress listens")
	flag.StringVar(&s.channel, "channel", "127.0.0.1:8081", "where the InMemoryChannel's dispatcher listens")
	flag.StringVar(&s.filter, "filter", "127.0.0.1:8082", "where the broker's filter listens")
	flag.StringVar(&s.triggers, "triggers", "", "JSON file: [{name, subscriber, type}]")
	flag.StringVar(&s.namespace, "namespace", "default", "of Broker and Triggers")
	flag.StringVar(&s.broker, "broker", "bench", "name of the Broker")
	flag.BoolVar(&s.async, "async", false, "messaging.knative.dev/async-handler: the channel answers before it delivers (default of Knative: false)")
	flag.IntVar(&s.retry, "retry", 10, "delivery.retry (of Knative's default broker: 10)")
	flag.StringVar(&s.backoffDelay, "backoff-delay", "PT0.2S", "delivery.backoffDelay (of Knative's default broker: PT0.2S, exponential)")
	flag.StringVar(&s.level, "log-level", "info", "of zap; Knative's default: info")
	flag.Parse()
	os.Setenv("SYSTEM_NAMESPACE", systemNamespace)
	if err := run(s); err != nil {
		log.Fatal(err)
	}
}

func run(s settings) error {
	for _, address := range []string{s.ingress, s.channel, s.filter} {
		if host, _, err := net.SplitHostPort(address); err != nil || host != "127.0.0.1" {
			return fmt.Errorf("%s is not on 127.0.0.1", address)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	logger, err := newLogger(s.level)
	if err != nil {
		return err
	}
	ctx = logging.WithLogger(ctx, logger.Sugar())
	specs, err := readTriggers(s.triggers)
	if err != nil {
		return err
	}

	// Knative's defaults of config-tracing and config-observability: traces are made and not exported, metrics are
	// recorded and not scraped.
	tracer, err := tracing.SetupPublishingWithStaticConfig(logger.Sugar(), "bench", tracingconfig.NoopConfig())
	if err != nil {
		return err
	}
	defer tracer.Shutdown(context.Background())

	// The values of config/core/configmaps/features.yaml.
	features := feature.NewStore(logger.Sugar().Named("feature-config-store"))
	features.WatchConfigs(configmap.NewStaticWatcher(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: feature.FlagsConfigName, Namespace: systemNamespace},
		Data: map[string]string{
			"kreference-group": "disabled", "delivery-retryafter": "disabled", "delivery-timeout": "enabled", "kreference-mapping": "disabled",
			"transport-encryption": "disabled", "eventtype-auto-create": "disabled", "authentication-oidc": "disabled",
			"default-authorization-mode": "allow-same-namespace", "cross-namespace-event-links": "disabled",
			"new-apiserversource-filters": "disabled",
		},
	}))
	withFeatures := func(ctx context.Context) context.Context { return features.ToContext(ctx) }

	theBroker, triggers, err := resources(s, specs)
	if err != nil {
		return err
	}
	objects := []runtime.Object{theBroker}
	for _, t := range triggers {
		objects = append(objects, t)
	}
	informers := externalversions.NewSharedInformerFactory(fake.NewSimpleClientset(objects...), 0)

	is := func(role string) bool { return s.role == role || s.role == "all" }
	servers := map[string]*http.Server{}
	if is("ingress") {
		handler, err := ingress.NewHandler(logger, ingress.NewStatsReporter("bench", "ingress"), broker.TTLDefaulter(logger, 255),
			informers.Eventing().V1().Brokers(), nil, nil, nil, withFeatures)
		if err != nil {
			return err
		}
		servers[s.ingress] = server(handler, 0)
	}
	if is("filter") {
		handler, err := filter.NewHandler(logger, nil, nil, informers.Eventing().V1().Triggers(), informers.Eventing().V1().Brokers(),
			informers.Messaging().V1().Subscriptions(), filter.NewStatsReporter("bench", "filter"), nil, withFeatures)
		if err != nil {
			return err
		}
		servers[s.filter] = server(handler, 0)
	}
	if s.role == "channel" || s.role == "channel-only" || s.role == "all" {
		if s.role != "all" { // one setting in a process: the last one that was made
			kncloudevents.ConfigureConnectionArgs(&kncloudevents.ConnectionArgs{MaxIdleConns: 1000, MaxIdleConnsPerHost: 1000})
		}
		subscribers, err := subscriptions(s, triggers, s.role == "channel-only")
		if err != nil {
			return err
		}
		clientConfig := eventingtls.ClientConfig{}
		fanoutHandler, err := fanout.NewFanoutEventHandler(logger, fanout.Config{AsyncHandler: s.async, Subscriptions: subscribers},
			channel.NewStatsReporter("bench", "channel"), nil, nil, nil, kncloudevents.NewDispatcher(clientConfig, nil),
			channel.ResolveChannelFromPath(channel.ParseChannelFromPath), channel.ReceiverWithContextFunc(withFeatures))
		if err != nil {
			return err
		}
		many := multichannelfanout.NewEventHandler(ctx, logger)
		many.SetChannelHandler(s.namespace+"/"+channelName(s), fanoutHandler)
		for _, each := range subscribers {
			kncloudevents.AddOrUpdateAddressableHandler(clientConfig, each.Subscriber)
			if each.Reply != nil {
				kncloudevents.AddOrUpdateAddressableHandler(clientConfig, *each.Reply)
			}
		}
		servers[s.channel] = server(many, 15*time.Minute)
	}
	if len(servers) == 0 {
		return fmt.Errorf("no role %q", s.role)
	}

	informers.Start(ctx.Done())
	for what, synced := range informers.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("%v did not sync", what)
		}
	}
	failed := make(chan error, len(servers))
	for address, each := range servers {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		go func() { failed <- each.Serve(listener) }()
	}
	fmt.Printf("{\"ready\":true,\"role\":%q,\"broker\":\"http://%s/%s/%s\",\"channel\":%q}\n", s.role, s.ingress, s.namespace, s.broker, channelURL(s))
	select {
	case <-ctx.Done():
	case err := <-failed:
		return err
	}
	for _, each := range servers {
		each.Close()
	}
	return nil
}

// server is what kncloudevents.HTTPEventReceiver.StartListen makes, which would listen on every address of the machine.
func server(handler http.Handler, readTimeout time.Duration) *http.Server {
	return &http.Server{Handler: &handlers.Drainer{Inner: kncloudevents.CreateHandler(handler)}, ReadTimeout: readTimeout}
}

func newLogger(level string) (*zap.Logger, error) {
	config := zap.NewProductionConfig() // as config/core/configmaps/logging.yaml, but for the names of the fields
	parsed, err := zap.ParseAtomicLevel(level)
	config.Level = parsed
	if err != nil {
		return nil, err
	}
	return config.Build()
}

func readTriggers(file string) ([]triggerSpec, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var specs []triggerSpec
	return specs, json.Unmarshal(text, &specs)
}

// channelName is that of the channel that the Broker's reconciler makes.
func channelName(s settings) string { return s.broker + "-kne-trigger" }

// channelURL is by path, as the Broker's is with transport encryption; without, Knative tells channels apart by host, which needs its DNS.
func channelURL(s settings) string {
	return fmt.Sprintf("http://%s/%s/%s", s.channel, s.namespace, channelName(s))
}

func delivery(s settings) *eventingduckv1.DeliverySpec {
	retry, policy := int32(s.retry), eventingduckv1.BackoffPolicyExponential
	return &eventingduckv1.DeliverySpec{Retry: &retry, BackoffPolicy: &policy, BackoffDelay: &s.backoffDelay}
}

func resources(s settings, specs []triggerSpec) (*eventingv1.Broker, []*eventingv1.Trigger, error) {
	address, err := apis.ParseURL(fmt.Sprintf("http://%s/%s/%s", s.ingress, s.namespace, s.broker))
	if err != nil {
		return nil, nil, err
	}
	made := &eventingv1.Broker{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.broker, UID: types.UID("broker-uid")},
		Spec:       eventingv1.BrokerSpec{Delivery: delivery(s)},
	}
	made.Status.Address = &duckv1.Addressable{URL: address}
	made.Status.Annotations = map[string]string{eventing.BrokerChannelAddressStatusAnnotationKey: channelURL(s)}
	made.Status.InitializeConditions()
	var triggers []*eventingv1.Trigger
	for index, spec := range specs {
		subscriber, err := apis.ParseURL(spec.Subscriber)
		if err != nil {
			return nil, nil, err
		}
		t := &eventingv1.Trigger{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: spec.Name, UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", index))},
			Spec:       eventingv1.TriggerSpec{Broker: s.broker, Subscriber: duckv1.Destination{URI: subscriber}},
		}
		if spec.Type != "" {
			t.Spec.Filters = []eventingv1.SubscriptionsAPIFilter{{Exact: map[string]string{"type": spec.Type}}}
		}
		t.Status.SubscriberURI = subscriber
		triggers = append(triggers, t)
	}
	return made, triggers, nil
}

// subscriptions are those that the Trigger's reconciler makes: from the channel to the filter's URL of the Trigger, replies to the Broker.
func subscriptions(s settings, triggers []*eventingv1.Trigger, direct bool) ([]fanout.Subscription, error) {
	var made []fanout.Subscription
	for _, t := range triggers {
		name := strings.Join([]string{s.broker, t.Name, string(t.UID)}, "-")
		spec := eventingduckv1.SubscriberSpec{UID: t.UID, Name: &name, Delivery: delivery(s)}
		if direct {
			spec.SubscriberURI = t.Status.SubscriberURI
		} else {
			spec.SubscriberURI = &apis.URL{Scheme: "http", Host: s.filter, Path: path.Generate(t)}
			spec.ReplyURI = &apis.URL{Scheme: "http", Host: s.ingress, Path: "/" + s.namespace + "/" + s.broker}
		}
		one, err := fanout.SubscriberSpecToFanoutConfig(spec)
		if err != nil {
			return nil, err
		}
		one.Namespace = s.namespace
		made = append(made, *one)
	}
	return made, nil
}
