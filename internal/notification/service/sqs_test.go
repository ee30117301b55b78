package service_test

import (
	"crypto/md5" // the service returns it, and the library compares it
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/serin-dev/serin/internal/chat"
	"github.com/serin-dev/serin/internal/notification"
	"github.com/serin-dev/serin/internal/notification/service"
	"github.com/serin-dev/serin/internal/outbound"
)

// sqsHeader are the headers of a request; the signature is different each time.
var sqsHeader = map[string]string{"Authorization": "AWS4-HMAC-SHA256", "Content-Type": "application/x-amz-json-1.0"}

// answerAsSQS responds as Amazon SQS does.
func answerAsSQS(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".GetQueueUrl") {
		_, _ = io.WriteString(w, `{"QueueUrl":"https://sqs.example/1/q"}`)
		return
	}
	sum := md5.Sum([]byte("hi"))
	_ = json.NewEncoder(w).Encode(map[string]string{"MessageId": "1", "MD5OfMessageBody": hex.EncodeToString(sum[:])})
}

func TestErrorsOfSQS(t *testing.T) {
	for code, c := range map[string]struct {
		want  string
		again bool
	}{
		"AccessDenied": {"Amazon SQS answered 400 Bad Request (AccessDenied): check queue", false},
		"AWS.SimpleQueueService.NonExistentQueue": {"Amazon SQS answered 400 Bad Request (AWS.SimpleQueueService.NonExistentQueue)", false},
		"ThrottlingException":                     {"Amazon SQS answered 400 Bad Request (ThrottlingException)", true},
		"see https://evil.example":                {"Amazon SQS answered 400 Bad Request", false},
	} {
		err := serviceCases["awssqs"].send(t, t.Context(), newFakeService(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_ = json.NewEncoder(w).Encode(map[string]string{"__type": code, "message": "secret words"})
		}))
		if _, again := chat.RetryAfter(err, now); err == nil || !strings.Contains(err.Error(), c.want) || again != c.again || strings.Contains(err.Error(), "evil") || strings.Contains(err.Error(), "secret words") {
			t.Errorf("%s: %v, again %v", code, err, again)
		}
	}
}

// TestNamespaceNeedsItsOwnKeyForSQS checks that the configuration of a namespace cannot use the identity of the controller.
func TestNamespaceNeedsItsOwnKeyForSQS(t *testing.T) {
	for options, good := range map[string]bool{"{region: eu-west-1, queue: q}": false, "{region: eu-west-1, queue: q, key: K, secret: S}": true} {
		config := notification.NewConfig(map[string]string{"service.awssqs": options}, nil)
		for own, config := range map[bool]*notification.Config{false: config, true: config.ForNamespace("shop")} {
			s, err := config.Service("awssqs")
			if err != nil {
				t.Fatal(err)
			}
			client := outbound.New(outbound.Policy{})
			t.Cleanup(client.Close)
			if _, err := service.New(client, outbound.Policy{}, s); (err == nil) != (good || !own) || err != nil && !strings.Contains(err.Error(), "set key and secret") {
				t.Errorf("%s, configured by the namespace %v: %v", options, own, err)
			}
		}
	}
}

func TestSQSWithoutCredentialsIsRetried(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("HOME", t.TempDir())
	sender, err := newSender(t, "awssqs", "{region: eu-west-1, queue: q}")
	if err != nil {
		t.Fatal(err)
	}
	err = sender.Send(t.Context(), service.Message{Content: content(t, "message: hi")})
	if _, again := chat.RetryAfter(err, now); err == nil || !again || !strings.Contains(err.Error(), "no credentials of the controller") {
		t.Errorf("%v, again %v", err, again)
	}
}
